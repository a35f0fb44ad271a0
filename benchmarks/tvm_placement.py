"""Time of networks in TVM's virtual machine, shared among our C and TVM's own code, beside each of the two alone.

    python benchmarks/tvm_placement.py --output benchmarks/results/tvm_placement.json

Operators are placed by times measured alone (`tvm_ext.Placing(measure=True)`). Then the mix, our C alone, and the whole
model as TVM compiles it by default, are timed in turn, round by round in one process, by TVM's `time_evaluator`; the
least time of each counts, for what else the machine does only adds. TVM's code is for this machine's processor, as our
C is; its schedules are its default ones, nothing is tuned.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import measure_each  # noqa: E402

NETWORKS = ("ds_cnn_fp32", "ds_cnn_int8", "ffn_16_128_512_fp32")
ROUNDS = 20
RUNS = 10
"""Runs of each way in a round."""

PLATFORM = """
[[processors]]
name = "llvm"
kind = "tvm"
isa = "host"
clock_hz = 1_000_000_000
[processors.tvm]
target = "llvm"
"""
"""Behind the host's own core; no rates, for all is measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    return measure_each(arguments, __doc__, {"networks": (NETWORKS, network)})


def network(name: str) -> dict[str, Any]:
    """Seconds of a run of the mix and of each alone, and what the mix consists of."""
    import tvm

    with TemporaryDirectory(prefix="tvm_placement_") as temporary:
        folder = Path(temporary)
        host = ROOT / "tvm_ext" / "platforms" / "host.toml"
        (folder / "mixed.toml").write_text(host.read_text().replace("[[memories]]", PLATFORM + "[[memories]]", 1))
        onnx.save(zoo.build(name), folder / f"{name}.onnx")
        mod = tvm_ext.load(folder / f"{name}.onnx")
        target = {"kind": "llvm", "mcpu": str(tvm.target.codegen.llvm_get_system_cpu())}
        placing = tvm_ext.Placing(measure=True, target=target)
        placed = tvm_ext.place(mod, str(folder / "mixed.toml"), placing=placing)
        executables = {
            "mixed": placed.compile(target),
            "our_c": tvm.compile(mod, target="llvm", relax_pipeline=tvm_ext.relax_pipeline("host")),
            "tvm": tvm.compile(mod, target=tvm.target.Target(target)),
        }
    report = placed.report
    return {
        "seconds": _timed(executables, mod),
        "operators": {one["name"]: one["operators"] for one in report["processors"]},
        "in_tvm": [row["kind"] for row in report["operators"] if row["processor"] == "llvm"],
        "sum_of_operators_seconds": {"mixed": report["total_seconds"], **report["single_processor_seconds"]},
    }


def _timed(executables: dict[str, Any], mod: Any) -> dict[str, float]:
    """The least seconds of a run of each, of rounds in turn."""
    import tvm
    from tvm import relax

    random, timers = np.random.default_rng(0), {}
    arrays = []
    for param in mod["main"].params:
        shape, dtype = [int(extent) for extent in param.ty.shape.values], str(param.ty.dtype)
        arrays.append(tvm.runtime.tensor((random.random(shape) * 100).astype(dtype)))
    for key, executable in executables.items():
        machine = relax.VirtualMachine(executable, tvm.cpu())
        machine.save_function("main", "timed", *arrays)
        timers[key] = machine.time_evaluator("timed", tvm.cpu(), number=1, repeat=RUNS)
    rounds = [{key: float(timer().min) for key, timer in timers.items()} for _ in range(ROUNDS)]
    return {key: min(one[key] for one in rounds) for key in timers}


if __name__ == "__main__":
    sys.exit(main())
