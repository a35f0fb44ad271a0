"""The ONNX backend suite, end to end through the generated C on this machine.

    python benchmarks/onnx_conformance.py --mode as-is
    python benchmarks/onnx_conformance.py --mode baked --sample 150 --seed 0
    python benchmarks/onnx_conformance.py --way load --tables --results out/loads.jsonl   (and with --mode baked)

Results are kept in a JSONL file and not computed again for an unchanged case (`--again` does). After a run of all
cases the totals and the table of refusals in `benchmarks/conformance/` are written anew.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.conformance.build_case import build_case  # noqa: E402
from benchmarks.conformance.cases import MODES, Case, load_cases  # noqa: E402
from benchmarks.conformance.pool import run_all  # noqa: E402
from benchmarks.conformance.reasons import counted, read_case  # noqa: E402
from benchmarks.conformance.run_case import run_case  # noqa: E402
from benchmarks.conformance.tables import VERDICTS, totals, write_tables  # noqa: E402
from benchmarks.measure.commit import commit, stamped, write_result  # noqa: E402

Record = dict[str, object]
_WAYS = {"build": build_case, "compile": run_case, "load": read_case}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 if no case is wrong, none crashes, and no package that is right is rejected."""
    options = _options(arguments)
    cases = _chosen(load_cases([options.mode]), options)
    done = {} if options.again else read_records(options.results)
    # A case with one input at most is the same in both modes: its result holds for both.
    by_content = {record["content"]: record for record in done.values()}
    open_cases = [case for case in cases if case.content not in by_content]
    stale = [case for case in cases if done.get(case.key, {}).get("content") != case.content]
    known = [case for case in stale if case.content in by_content]
    print(f"{len(cases)} cases, {len(open_cases)} to run", flush=True)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    made_by = commit()
    with options.results.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({**by_content[case.content], "key": case.key}) + "\n" for case in known)
        ended = run_all(
            open_cases, num_workers=options.workers, time_limit_s=options.time_limit, run=_WAYS[options.way]
        )
        for index, (case, outcome) in enumerate(ended, start=1):
            record = {"key": case.key, "content": case.content, "commit": made_by, **asdict(outcome)}
            file.write(json.dumps(record) + "\n")
            file.flush()
            if outcome.verdict in ("wrong", "crash", "rejected"):
                print(f"{outcome.verdict}: {case.key}: {outcome.reason}", flush=True)
            if index % 100 == 0:
                print(f"{index} of {len(open_cases)}", flush=True)
    records = read_records(options.results)
    mine = [records[case.key] for case in cases if case.key in records]
    verdicts = Counter(str(record["verdict"]) for record in mine)
    print(", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS))
    if options.tables and options.way == "load":
        write_result(Path(__file__).parent / "results" / "onnx_reasons.json", stamped(counted(records)))
    elif options.tables:
        write_tables(totals(records), records, Path(__file__).parent / "conformance")
    return 1 if verdicts["wrong"] or verdicts["crash"] or verdicts["rejected"] else 0


def read_records(path: Path) -> dict[str, Record]:
    """The last record of each case; a line cut short by an interruption is skipped."""
    found: dict[str, Record] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[record["key"]] = record
    return found


def _chosen(cases: list[Case], options: argparse.Namespace) -> list[Case]:
    if options.match:
        cases = [case for case in cases if re.search(options.match, case.key)]
    if options.retry:
        verdicts, records = options.retry.split(","), read_records(options.results)
        cases = [case for case in cases if records.get(case.key, {}).get("verdict") in verdicts]
    if options.sample:
        chosen = random.Random(options.seed).sample(cases, min(options.sample, len(cases)))
        cases = sorted(chosen, key=lambda case: case.key)
    return cases


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="as-is", help="baked: inputs but the first are initializers")
    parser.add_argument(
        "--way", choices=_WAYS, default="compile",
        help="compile: the compiler, one call of gcc; build: the public build(), verified as by default, 2 s a case; "
             "load: only what is refused, and why",
    )  # fmt: skip
    parser.add_argument("--sample", type=int, help="run this many cases only, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--match", help="run cases whose key matches this regular expression")
    parser.add_argument("--retry", help="run cases that ended so last time, such as refused,wrong (with --again)")
    parser.add_argument("--again", action="store_true", help="run cases that have a result already")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a case may take")
    parser.add_argument("--results", type=Path, default=ROOT / "out" / "conformance.jsonl")
    parser.add_argument(
        "--tables",
        action="store_true",
        help="write totals.json and RESULTS.md from all results; of loads, onnx_reasons.json",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
