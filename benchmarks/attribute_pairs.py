"""Attributes of operators in pairs, each model of one operator against its format's runtime.

    python benchmarks/attribute_pairs.py
    python benchmarks/attribute_pairs.py --match onnx/Resize --again
    python benchmarks/attribute_pairs.py --slice 8 --floats

For each operator of ONNX, PyTorch and TensorFlow Lite that is taken, a covering array chooses values of its
attributes, shapes, element types and optional inputs so that every two values meet in a case. A case is loaded,
compiled, run through the generated C, and compared with onnxruntime, PyTorch, TensorFlow Lite Micro or LiteRT; models
of floats also quantized here, by their signal-to-noise ratio. `benchmarks/pairing/` holds the table of operators.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.conformance.pool import run_all  # noqa: E402
from benchmarks.measure.commit import commit, write_result  # noqa: E402
from benchmarks.pairing.examine import VERDICTS, Outcome, examined  # noqa: E402
from benchmarks.pairing.operator_case import PairCase, cases_of  # noqa: E402
from benchmarks.pairing.table import operators  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "attribute_pairs.json"
_BAD = ("wrong", "foreign")
_BATCH, _LIMIT_S = 24, 300.0
"""Cases that are compiled as one model, and seconds that they may take."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases that have no result yet, print those that are wrong. Exit status 0 if there are none."""
    options = _options(arguments)
    options.rows.parent.mkdir(parents=True, exist_ok=True)
    made_by, shown, done = (
        commit(),
        (*_BAD, *options.show.split(",")),
        {} if options.again else finished(known_rows(options.rows), bad=options.bad),
    )
    with options.rows.open("a", encoding="utf-8") as file:
        for case, outcome in run(
            options.match, options.workers, quantized=not options.floats, done=done, most=options.slice
        ):
            row = {"case": case.key, "commit": made_by, **asdict(outcome)}
            file.write(json.dumps(row) + "\n")
            file.flush()
            for verdict, reason in ((outcome.verdict, outcome.reason), (outcome.quantized, outcome.quantized_reason)):
                if verdict and verdict in shown:
                    print(f"{verdict}: {case.key}: {reason}", flush=True)
    result = summary(known_rows(options.rows))
    print(json.dumps(result["forms"], indent=1))
    if options.write:
        write_result(RESULT, result)
    return 1 if result["bad"] else 0


def known_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The last row of each case by its key; a line cut short by an interruption is skipped."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["case"]] = row
    return found


def finished(rows: Mapping[str, Mapping[str, Any]], *, bad: bool = False) -> dict[str, Any]:
    """Return what need not run: cases that have a result; bad: all but those whose result is wrong or foreign."""
    if not bad:
        return dict(rows)
    again = {key for key, row in rows.items() if {row["verdict"], row["quantized"]} & {*_BAD}}
    return {case.key: {} for o in operators().values() for case in cases_of(o) if case.key not in again}


def run(
    match: str = "", workers: int = 1, *, quantized: bool = True, done: Mapping[str, Any] | None = None, most: int = 0
) -> Iterator[tuple[PairCase, Outcome]]:
    """Outcomes of the cases whose operator the pattern matches, in worker processes, but those that are done.

    most: take that many random cases of each operator at most, operators with the fewest results first; 0 takes all in
    order.
    """
    batches: list[tuple[PairCase, ...]] = []
    draw = random.Random(len(done or {}))
    for operator in operators().values():
        if re.search(match, operator.title):
            cases = [case for case in cases_of(operator) if case.key not in (done or {})]
            cases = draw.sample(cases, min(most, len(cases))) if most else cases
            batches += [tuple(cases[begin : begin + _BATCH]) for begin in range(0, len(cases), _BATCH)]
    if most:
        results = Counter(key.split()[0] for key in done or {})
        draw.shuffle(batches)
        batches.sort(key=lambda batch: results[batch[0].operator])
    yield from outcomes_of(batches, workers, quantized=quantized)


def outcomes_of(
    batches: Sequence[tuple[PairCase, ...]], workers: int, *, quantized: bool
) -> Iterator[tuple[PairCase, Outcome]]:
    """Outcomes of batches of cases of one operator each; a batch that ends its process runs again one by one."""
    again: list[tuple[PairCase, ...]] = []
    ended = run_all(
        batches, num_workers=workers, time_limit_s=_LIMIT_S, run=partial(batch_outcomes, quantized=quantized),
        failed=_failed,
    )  # fmt: skip
    for batch, outcomes in ended:
        if isinstance(outcomes, Outcome) and len(batch) > 1:
            again += [(case,) for case in batch]
        else:
            found = [outcomes] if isinstance(outcomes, Outcome) else outcomes
            yield from zip(batch, found, strict=True)
    if again:
        yield from outcomes_of(again, workers, quantized=quantized)


def batch_outcomes(batch: Sequence[PairCase], *, quantized: bool = True) -> list[Outcome]:
    """Outcomes of cases of one operator in a worker process, which keeps the table."""
    return examined(operators()[batch[0].operator], batch, quantized=quantized)


def _failed(reason: str) -> Outcome:
    return Outcome(verdict="foreign", reason=reason)


def summary(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of verdicts by format, of the rows of cases that the table still has; rows of what is wrong.

    commit: that of most rows; run_again: those that others made, of operators that were mended since.
    """
    current = {case.key: rows[case.key] for o in operators().values() for case in cases_of(o) if case.key in rows}
    forms: dict[str, Any] = {}
    for form in sorted({key.split("/")[0] for key in current}):
        mine = {key: row for key, row in current.items() if key.startswith(f"{form}/")}
        floats = Counter(row["verdict"] for row in mine.values())
        int8 = Counter(row["quantized"] for row in mine.values() if row["quantized"])
        forms[form] = {
            "operators": len({key.split()[0] for key in mine}),
            "float": {verdict: floats[verdict] for verdict in VERDICTS},
            "int8": {verdict: int8[verdict] for verdict in VERDICTS},
        }
    (most, _), *others = Counter(str(row["commit"]) for row in current.values()).most_common()
    return {
        "commit": most,
        "run_again": [{"commit": commit, "cases": count} for commit, count in others],
        "forms": forms,
        "bad": [dict(row) for row in current.values() if {row["verdict"], row["quantized"]} & {*_BAD}],
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="regular expression for form/operator")
    parser.add_argument("--again", action="store_true", help="run cases that have a result already")
    parser.add_argument("--slice", type=int, default=0, help="random cases of each operator at most; 0 for all")
    parser.add_argument("--bad", action="store_true", help="run those again that came out wrong or foreign, alone")
    parser.add_argument("--floats", action="store_true", help="leave out what is quantized here")
    parser.add_argument("--show", default="", help="further verdicts to print, with commas between")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=Path, default=ROOT / "out" / "attribute_pairs.jsonl", help="results by case")
    parser.add_argument("--write", action="store_true", help=f"write the counts of all rows to {RESULT.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
