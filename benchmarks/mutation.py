"""Would the tests notice a fault? Changes one thing at a time in the sources and runs the tests of that folder.

    python benchmarks/mutation.py --files 'codegen_c/arena/validate*.py' --per-file 20 --seed 0

A flipped comparison, an off by one, `and` for `or`, a guard or a statement removed, another constant, a negated answer:
`benchmarks/mutating/changes.py`. The tests of a file are those that `tests_of.toml` names, in a copy of the tree. A
change is killed where one of them fails or none ends within the limit, and else it survived: then either a test is
missing or the program computes the same. Those judged to be the latter stand in `equivalent.toml` with the reason, and
are not tried. A sample is the same for the same seed and sources.

Libraries that do this were weighed (mutmut 3.8.1, cosmic-ray 8.7.0), and none serves. mutmut 3 changes bodies of
functions only, and tolerances are constants of modules; it runs all tests once to learn which belong to what, and takes
no seed. cosmic-ray has one command of tests for all files, changes the working tree itself, starts a process for each
change (importing takes longer here than the tests of a validator), tries every comparison for every other one, and
cannot take away a guard.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import commit, write_result  # noqa: E402
from benchmarks.mutating.changes import Change, changes_of  # noqa: E402
from benchmarks.mutating.trial import copied, import_libraries, run_tests, try_change  # noqa: E402

MUTATING = ROOT / "benchmarks" / "mutating"
OUTCOMES = ("killed", "timed out", "survived")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", nargs="+", required=True, help="paths or patterns, from the root of the project")
    parser.add_argument("--per-file", type=int, default=20, help="changes tried in each file, drawn at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600, help="no change is tried after so many")
    parser.add_argument(
        "--limit-seconds", type=float, default=60,
        help="a change is killed whose tests take so much longer than three times what they take without it",
    )  # fmt: skip
    parser.add_argument("--lines", help="BEGIN:END, half-open: changes of these lines only")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    files = sorted({path.relative_to(ROOT).as_posix() for given in arguments.files for path in ROOT.glob(given)})
    mapped = {file: tests_of(file) for file in files}
    made_by = commit()
    import_libraries()
    end = time.monotonic() + arguments.seconds
    with TemporaryDirectory() as folder:
        tree = copied(ROOT, Path(folder))
        rows = [
            row
            for file in files
            if time.monotonic() < end and (row := tried(tree, file, mapped[file], arguments, end)) is not None
        ]
    found = {
        "commit": made_by, "seed": arguments.seed, "per_file": arguments.per_file,
        "folders": by_folder(rows), "files": rows,
    }  # fmt: skip
    print(table(rows))
    if arguments.output:
        write_result(arguments.output, found)
    return 0


def tests_of(file: str) -> list[str]:
    """Test files of a source file that exist."""
    for row in tomllib.loads((MUTATING / "tests_of.toml").read_text())["files"]:
        if PurePath(file).match(row["pattern"]):
            return [test for test in row["tests"] if (ROOT / test).exists()]
    raise SystemExit(f"{file}: benchmarks/mutating/tests_of.toml names no tests for it. Add a row.")


def is_equivalent(file: str, was: str, becomes: str) -> bool:
    rows = tomllib.loads((MUTATING / "equivalent.toml").read_text()).get("changes", [])
    return any((row["file"], row.get("was", was), row["becomes"]) == (file, was, becomes) for row in rows)


def tried(
    tree: Path, file: str, tests: Sequence[str], arguments: argparse.Namespace, end: float
) -> dict[str, Any] | None:
    """The outcome of a file's sample, as far as time allows; None where the tests fail without a change."""
    source = (tree / file).read_bytes()
    begin = time.monotonic()
    if run_tests(tree, tests, limit_seconds=arguments.seconds) != "survived":
        print(f"{file}: its tests fail as it stands, left out", flush=True)
        return None
    limit_seconds = 3 * (time.monotonic() - begin) + arguments.limit_seconds
    possible = chosen_lines(changes_of(source), arguments.lines)
    sample = random.Random(f"{arguments.seed}:{file}").sample(possible, min(arguments.per_file, len(possible)))
    row: dict[str, Any] = {"file": file, "possible": len(possible), "tried": 0, "equivalent": 0}
    row |= {outcome: 0 for outcome in OUTCOMES[:2]} | {"survived": []}
    for change in sample:
        was, becomes = change.shown(source)
        if is_equivalent(file, was, becomes):
            row["equivalent"] += 1
            continue
        if time.monotonic() >= end:
            break
        outcome = try_change(tree, file, change.applied(source), tests, limit_seconds=limit_seconds)
        row["tried"] += 1
        if outcome == "survived":
            row["survived"].append({"line": change.line, "kind": change.kind, "was": was, "becomes": becomes})
            print(f"{file}:{change.line}: survived ({change.kind})\n    {was}\n    {becomes}", flush=True)
        else:
            row[outcome] += 1
    return row


def chosen_lines(changes: list[Change], lines: str | None) -> list[Change]:
    if lines is None:
        return changes
    begin, end = (int(number) for number in lines.split(":"))
    return [change for change in changes if begin <= change.line < end]


def by_folder(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        total = found.setdefault(str(PurePath(row["file"]).parent), dict.fromkeys(("tried", "noticed", "survived"), 0))
        total["tried"] += row["tried"]
        total["noticed"] += row["killed"] + row["timed out"]
        total["survived"] += len(row["survived"])
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| file | tried | killed | timed out | survived | equivalent |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row['file']} | {row['tried']} | {row['killed']} | {row['timed out']} | {len(row['survived'])} | "
        f"{row['equivalent']} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
