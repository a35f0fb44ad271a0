"""Random and damaged inputs through the whole compiler, with reference runtimes of what comes out.

    python benchmarks/fuzz.py --seconds 600 --seed 1
    python benchmarks/fuzz.py --seed 1 --case 4711

A case is a pure function of seed and index. Each runs in a process of its own, with limits. Results go to
`benchmarks/results/fuzz.json`, a run behind the other with `--add`, a table of all to the screen; the exit status is 1
where anything failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.fuzzing.draw import kind_of  # noqa: E402
from benchmarks.fuzzing.fuzzer import Fuzzer, run_apart, warm_fuzzer  # noqa: E402
from benchmarks.fuzzing.regression_script import write_script  # noqa: E402
from benchmarks.fuzzing.shrink import shrunk  # noqa: E402
from benchmarks.fuzzing.tables import Record, summary, table, total  # noqa: E402
from benchmarks.measure.commit import commit, write_result  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0 where no case failed."""
    options = _options(arguments)
    fuzzer = warm_fuzzer(options.seed)
    if options.case is not None:
        return _one(fuzzer, options)
    begin, records = time.monotonic(), list[Record]()
    indices = (
        itertools.count(options.first) if options.cases is None else range(options.first, options.first + options.cases)
    )
    if options.kind:
        indices = (index for index in indices if options.kind in kind_of(options.seed, index))
    if options.without:
        indices = (index for index in indices if options.without not in kind_of(options.seed, index))
    try:
        if options.read_only:
            kinds = ("command line", "package", "valid")  # these compile
            indices = (index for index in indices if not kind_of(options.seed, index).startswith(kinds))
            records_of = fuzzer.read(indices, seconds=options.seconds)
        else:
            records_of = fuzzer.run(indices, num_workers=options.workers, seconds=options.seconds)
        for record in records_of:
            records.append(record)
            if record.outcome.is_failure:
                print(_line(record), flush=True)
            elif len(records) % 500 == 0:
                print(f"{len(records)} cases, {time.monotonic() - begin:.0f} s", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    result = summary(records, seed=options.seed, commit=commit(), wall_s=time.monotonic() - begin)
    earlier = json.loads(options.results.read_text())["runs"] if options.add else []
    write_result(options.results, {"runs": [*earlier, result]})
    print(table(total([*earlier, result])))
    return 1 if result["failures"] else 0


def _one(fuzzer: Fuzzer, options: argparse.Namespace) -> int:
    """One case alone, with all that is known of it; shrunk and kept as a script where that is asked for."""
    (record,) = fuzzer.run([options.case])
    print(_line(record))
    print(record.outcome.detail)
    specimen = fuzzer.specimen(options.case)
    if options.shrink and record.outcome.is_interesting and specimen is not None:
        signature = record.outcome.signature
        small = shrunk(specimen, lambda candidate: run_apart(candidate).signature == signature)
        path = ROOT / "tests" / "regressions" / f"{options.shrink}.py"
        origin = f"`benchmarks/fuzz.py --seed {options.seed} --case {options.case}`"
        write_script(path, small, run_apart(small), origin=origin)
        print(f"written: {path}")
    return 1 if record.outcome.is_failure else 0


def _line(record: Record) -> str:
    outcome = record.outcome
    figures = f"[{outcome.stage}, {outcome.cpu_s:.1f} s, {outcome.peak_bytes >> 20} MiB]"
    gist = " ".join(outcome.detail.split())[:150]
    return f"{record.index} {record.kind}: {outcome.kind}: {outcome.error} {outcome.where} {figures} {gist}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="no case begins after that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument(
        "--shrink", metavar="NAME", help="with --case: keep a smaller form as tests/regressions/NAME.py"
    )
    parser.add_argument("--first", type=int, default=0, help="index of the first case")
    parser.add_argument("--cases", type=int, help="run at most this many")
    parser.add_argument("--kind", help="only kinds of cases whose name holds this, such as valid")
    parser.add_argument("--without", help="only kinds of cases whose name does not hold this")
    parser.add_argument("--read-only", action="store_true", help="damaged files, read and not compiled, many at once")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--add", action="store_true", help="keep the runs that the results have, and count them too")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "fuzz.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
