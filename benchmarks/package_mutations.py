"""Do a package's self-test and its build notice a fault in its C? Changes one thing at a time in finished packages.

    python benchmarks/package_mutations.py --per-kind 4 --seed 0

A weight, the offset of a tensor, the end of a loop, a shift, a multiplier, a zero point, a bound of a clamp, a stride,
an index or an operator of a package's C is another one (`benchmarks/mutating/c_changes.py`). What does not compile, or
gives the same results on 100 random inputs, is left out: half of these inputs are evenly random, half of the forms that
self-tests draw, all of other seeds. Of the rest, how many does the self-test notice, how many the verification of a
build? Results of floats count as others where they are further off than the tolerance of the package. Runs of further
seeds add up.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.measure.commit import commit, known, write_result  # noqa: E402
from benchmarks.mutating.c_changes import KINDS, changes_of  # noqa: E402
from benchmarks.mutating.package_trial import PackageTrials, Trial  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402

SHARED = ROOT.parent / "shared"
RESULT = ROOT / "benchmarks" / "results" / "package_mutations.json"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A package whose C is changed: the model's file, the platform and the options of its build."""

    title: str
    model: str
    platform: str
    options: BuildOptions = field(default_factory=BuildOptions)


SUBJECTS = {
    "int8": Subject(title="int8, ONNX", model="models/kws_int8.onnx", platform="cortex_m3"),
    "int8_tflite": Subject(title="int8, TensorFlow Lite", model="models/resnet_int8.tflite", platform="cortex_m3"),
    "int8_dsp": Subject(title="int8, kernels of the Cortex-M4", model="models/kws_int8.tflite", platform="cortex_m4"),
    "int8_host": Subject(title="int8, vectors of the host", model="models/kws_int8.onnx", platform="host"),
    "float": Subject(title="float32", model="models/kws_fp32.onnx", platform="cortex_m3"),
    "states": Subject(title="states over time", model="streaming/vad_v2.tflite", platform="cortex_m3"),
    "hops": Subject(
        title="frames of a window", model="models/kws_int8.onnx", platform="cortex_m3",
        options=BuildOptions(new_frames={"input": 2}, time_axis={"input": 1}),
    ),
    "rows": Subject(
        title="inputs in rows", model="models/resnet_int8.onnx", platform="cortex_m3",
        options=BuildOptions(io="stream"),
    ),
    "two_cores": Subject(title="two cores", model="models/kws_int8.onnx", platform="dual_m33_equal"),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--subjects", nargs="+", choices=list(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--per-kind", type=int, default=4, help="changes tried of each kind in each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=36_000, help="no change is tried after so many")
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    made_by, end = commit(), time.monotonic() + arguments.seconds
    for name in arguments.subjects:
        row = examined(SUBJECTS[name], arguments.seed, arguments.per_kind, end)
        print(name, {key: value for key, value in row.items() if key != "missed"}, flush=True)
        runs = {**known(arguments.output).get("runs", {}), f"{name}:{arguments.seed}": {"commit": made_by, **row}}
        write_result(arguments.output, {"runs": dict(sorted(runs.items()))})
    return 0


def examined(subject: Subject, seed: int, per_kind: int, end: float) -> dict[str, Any]:
    """Totals of one package, and the changes that were missed."""
    totals = Counter[str](tried=0, changed=0, crashed=0, by_selftest=0, by_build=0)
    kinds, missed = Counter[str](), list[dict[str, Any]]()
    with PackageTrials(SHARED / subject.model, subject.platform, subject.options) as trials:
        for change in changes_of(trials.name, trials.files, seed, per_kind):
            if time.monotonic() > end:
                break
            trial = trials.trial(change)
            totals["tried"] += 1
            if trial.outcome != "changes a result":
                continue
            totals += Counter(
                changed=1, crashed=int(trial.crashed), by_selftest=int(trial.selftest or 0),
                by_build=int(trial.verified or 0),
            )  # fmt: skip
            kinds[change.kind] += 1
            if not (trial.selftest and trial.verified):
                missed.append(_shown(trial, change.kind, change.file, change.shown(trials.files[change.file])))
                print(missed[-1], flush=True)
        stored, runs, flash = len(trials.selftest.stored), trials.runs, trials.drawn_bytes
    return {
        "title": subject.title, "model": Path(subject.model).name, "platform": subject.platform, "seed": seed,
        **{name: totals[name] for name in ("tried", "changed", "crashed", "by_selftest", "by_build")},
        "runs": runs, "stored": stored, "drawn_bytes": flash,
        "kinds": {kind: kinds[kind] for kind in KINDS if kinds[kind]}, "missed": missed,
    }  # fmt: skip


def _shown(trial: Trial, kind: str, file: str, shown: str) -> dict[str, Any]:
    notices = {"selftest": bool(trial.selftest), "build": bool(trial.verified)}
    return {"kind": kind, "file": file, "change": shown, "inputs": trial.inputs, **notices}


if __name__ == "__main__":
    sys.exit(main())
