"""Models that run all day: instructions a run, memory, and bytes against TensorFlow Lite Micro run by run.

    python benchmarks/streams.py
    python benchmarks/streams.py str_ww --runs 100

The files lie in `../shared/streaming` and `../shared/models`. Those with states run as they are, and are compared step
by step; of windows over time each run brings some frames (`--new-frames`), and is compared with the whole
window's answer.
Instructions are counted in QEMU over one run after a warm-up; they are not cycles.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from relay_passes.dataflow import static_shape  # noqa: E402
from tvm_ext import BuildOptions, Package  # noqa: E402
from tvm_ext.core.errors import DoesNotFit, NotReady  # noqa: E402

SHARED = Path(os.environ.get("TVM_EXT_SHARED", ROOT.parent / "shared"))
RESULTS = ROOT / "benchmarks" / "results" / "streams.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model; hop: new frames in each run, along axis 1, 0 for a model that keeps states by itself.

    ram: bytes that it is made to fit.
    """

    file: str
    hop: int = 0
    ram: int | None = None


CASES: Mapping[str, Case] = {
    "okay_nabu_v2": Case(file="streaming/okay_nabu_v2.tflite"),
    "vad_v2": Case(file="streaming/vad_v2.tflite"),
    "str_ww": Case(file="streaming/str_ww.tflite", hop=1),
    "str_ww in 4,096 B": Case(file="streaming/str_ww.tflite", hop=1, ram=4096),
    "kws, 1 frame": Case(file="models/kws_int8.tflite", hop=1),
    "kws, 2 frames": Case(file="models/kws_int8.tflite", hop=2),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("cases", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--runs", type=int, default=500, help="runs that are compared on this machine")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    chosen = [name for name in CASES if not options.cases or name.startswith(tuple(options.cases))]
    found: dict[str, Any] = {}
    for name in chosen:
        with TemporaryDirectory(prefix="tvm_ext_") as folder:
            found[name] = measured(CASES[name], Path(folder), options.runs)
        print(name, found[name], flush=True)
    write_result(options.results, stamped({"cases": found}))
    return 1 if any(case["differing_runs"] for case in found.values()) else 0


def measured(case: Case, folder: Path, runs: int) -> dict[str, Any]:
    """Figures of a model on both boards, and of its whole window where it hops; runs compared on this machine."""
    path = SHARED / case.file
    module = tvm_ext.load(path)
    name = module["main"].params[0].name
    hops = {"new_frames": {name: case.hop}, "time_axis": {name: 1}} if case.hop else {}
    found: dict[str, Any] = {"hop": case.hop, "ram": case.ram}
    for platform in PLATFORMS:
        options = BuildOptions(**hops, ram=case.ram, verify=("qemu",))
        found[platform] = _built(module, platform, folder / platform, options)
        if case.hop:
            found[platform]["window"] = _built(
                module, platform, folder / f"{platform}_window", BuildOptions(verify=("qemu",))
            )
    host = tvm_ext.build(module, "host", folder / "host", BuildOptions(**hops, verify=()))
    differing = differing_runs(host, path, static_shape(module["main"].params[0]), runs)
    return found | {"compared_runs": runs, "differing_runs": differing}


def _built(module: Any, platform: str, folder: Path, options: BuildOptions) -> dict[str, Any]:
    try:
        report = tvm_ext.build(module, platform, folder, options).report
    except DoesNotFit as error:
        return {"does_not_fit": str(error).splitlines()[0]}
    return {
        "instructions": report["verify"]["qemu"]["instructions"], "ram_bytes": report["arena_bytes"],
        "state_bytes": report["state_bytes"], "flash_bytes": report["code_bytes"] + report["weights_bytes"],
        "stack_bytes": report["stack_bytes"],
    }  # fmt: skip


def differing_runs(package: Package, path: Path, window: Sequence[int], runs: int) -> int:
    """Runs whose outputs are not the bytes of TensorFlow Lite Micro, with its states carried or of the whole window."""
    from tflite_micro.python.tflite_micro.runtime import Interpreter

    interpreter = Interpreter.from_file(str(path))
    (source,) = package.inputs
    shape, warm_up = package.inputs[source].shape, package.report["warm_up_runs"]
    random, frames = np.random.default_rng(1), np.zeros((*window[:1], 0, *window[2:]), np.int8)
    differing = compared = 0
    with package.session() as session:
        run = 0
        while compared < runs:
            new = random.integers(-128, 128, shape).astype(np.int8)
            frames = np.concatenate([frames, new], 1)[:, -window[1] :]
            run += 1
            if run <= warm_up:
                _warm_up(session, {source: new})
                continue
            (ours,) = session.run({source: new}).values()
            interpreter.set_input(np.ascontiguousarray(frames) if warm_up else new, 0)
            interpreter.invoke()
            differing += not np.array_equal(ours, interpreter.get_output(0))
            compared += 1
    return differing


def _warm_up(session: Any, inputs: Mapping[str, Array]) -> None:
    try:
        session.run(inputs)
    except NotReady:
        return
    raise AssertionError("a run that warms up gives no answer")


if __name__ == "__main__":
    sys.exit(main())
