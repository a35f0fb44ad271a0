"""Attributes of operators in pairs, each model of one operator against its format's runtime.

    python benchmarks/attribute_pairs.py
    python benchmarks/attribute_pairs.py --match onnx/Resize --results out/pairs.json

For each operator of ONNX, PyTorch and TensorFlow Lite that is taken, a covering array chooses values of its
attributes, shapes, element types and optional inputs so that every two values meet in a case. A case is loaded,
compiled, run through the generated C, and compared with onnxruntime, PyTorch, TensorFlow Lite Micro or LiteRT; models
of floats also quantized here, by their signal-to-noise ratio. `benchmarks/pairing/` holds the table of operators.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.conformance.pool import run_all  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.pairing.examine import VERDICTS, Outcome, examined  # noqa: E402
from benchmarks.pairing.operator_case import PairCase, cases_of  # noqa: E402
from benchmarks.pairing.table import operators  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "attribute_pairs.json"
_BAD = ("wrong", "foreign")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases, print those that are wrong, write the counts. Exit status 0 if there are none."""
    options = _options(arguments)
    rows = []
    for case, outcome in run(options.match, options.workers, quantized=not options.floats, keys=options.keys):
        rows.append((case, outcome))
        for verdict, reason in ((outcome.verdict, outcome.reason), (outcome.quantized, outcome.quantized_reason)):
            if verdict and verdict in (*_BAD, *options.show.split(",")):
                print(f"{verdict}: {case.key}: {reason}", flush=True)
    result = summary(rows)
    print({form: found["float"] for form, found in result["forms"].items()})
    print({form: found["int8"] for form, found in result["forms"].items()})
    if options.results or not (options.match or options.keys):
        write_result(options.results or RESULT, stamped(result))
    bad = sum(found[mode][verdict] for found in result["forms"].values() for mode in ("float", "int8")
              for verdict in _BAD)  # fmt: skip
    return 1 if bad else 0


def run(
    match: str = "", workers: int = 1, *, quantized: bool = True, keys: Path | None = None
) -> Iterator[tuple[PairCase, Outcome]]:
    """Outcomes of all cases whose operator the pattern matches, in worker processes.

    keys: a file of keys, one in a line; only cases that it names run.
    """
    chosen = [operator for operator in operators().values() if re.search(match, operator.title)]
    cases = [case for operator in chosen for case in cases_of(operator)]
    if keys is not None:
        wanted = set(keys.read_text(encoding="utf-8").splitlines())
        cases = [case for case in cases if case.key in wanted]
    yield from run_all(
        cases, num_workers=workers, time_limit_s=120, run=partial(outcome_of, quantized=quantized),
        failed=lambda reason: Outcome(verdict="foreign", reason=reason),
    )  # fmt: skip


def outcome_of(case: PairCase, *, quantized: bool = True) -> Outcome:
    """Outcome of a case in a worker process, which keeps the table."""
    return examined(operators()[case.operator], case, quantized=quantized)


def summary(rows: Sequence[tuple[PairCase, Outcome]]) -> dict[str, object]:
    """Counts of verdicts by format and by operator; rows of what is wrong."""
    forms: dict[str, dict[str, object]] = {}
    for form in sorted({case.operator.split("/")[0] for case, _ in rows}):
        mine = [(case, outcome) for case, outcome in rows if case.operator.startswith(f"{form}/")]
        floats = Counter(outcome.verdict for _, outcome in mine)
        int8 = Counter(outcome.quantized for _, outcome in mine if outcome.quantized)
        forms[form] = {
            "operators": len({case.operator for case, _ in mine}),
            "float": {verdict: floats[verdict] for verdict in VERDICTS},
            "int8": {verdict: int8[verdict] for verdict in VERDICTS},
        }
    bad = [
        {"case": case.key, **asdict(outcome)}
        for case, outcome in rows
        if outcome.verdict in _BAD or outcome.quantized in _BAD
    ]
    return {"forms": forms, "bad": bad}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", default="", help="regular expression for form/operator")
    parser.add_argument("--keys", type=Path, help="a file of cases to run, one key in a line")
    parser.add_argument("--floats", action="store_true", help="leave out what is quantized here")
    parser.add_argument("--show", default="", help="further verdicts to print, with commas between")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, help=f"default: {RESULT}, with all operators")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
