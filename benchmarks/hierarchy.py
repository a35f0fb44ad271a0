"""Gain by several memories: predicted time with and without them, bytes moved, and distance to the best plans.

    python benchmarks/hierarchy.py --output benchmarks/results/hierarchy.json
    python benchmarks/hierarchy.py --networks --graphs 30 --seconds 120 --output /tmp/hierarchy.json

Networks are built for a platform twice, everything in its default memory and in all of them, and run on the board in
QEMU: outputs must be the same bits, and the bytes that the board counts those that were planned. Cycles are predicted
by `tvm_ext.core.time_model`: QEMU models no memory timing. Graphs are random ones of 8 to 30 operators, whose plans are
compared with the bound that ortools proves within `--seconds` (extra `exact`): no plan is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest import mock

import numpy as np
import onnx
import tvm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from codegen_c.costs.predict import predicted_cycles, time_model  # noqa: E402
from relay_passes.solvers.memories.search import assign  # noqa: E402
from tests.support.memory_problems import random_problem  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402
from tvm_ext.verification.input_ranges import random_inputs  # noqa: E402

NETWORKS = (
    "always_on:resnet8_fp32",
    "always_on:resnet8_int8",
    "always_on:resnet8_int8:dtcm=26624",
    "always_on:resnet8_int8:dtcm=26624:sram=32768",
    "always_on:ds_cnn_int8",
    "always_on:mobilenet_v2_035_144_int8",
    "always_on:mcunet_320k_int8",
    "cortex_m7_psram:resnet8_int8",
    "cortex_m7_psram:mobilenet_v2_035_144_int8",
    "cortex_m7_psram:mobilenet_v2_100_224_int8",
)
"""board:network, and bytes that a memory may give where that is less than it holds."""
GRAPHS = (8, 16, 30)
CUTS = ("tvm_ext.compilation.pipeline.cutting", lambda *_: tvm.transform.Sequential([]))
"""Nothing runs by rows, or again."""
TILES = ("relay_passes.memory.assign_memories.with_tiles", lambda plan, *_: plan)
"""No layer is computed in tiles."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), help="board:network:memory=bytes")
    parser.add_argument("--graphs", nargs="*", type=int, default=list(GRAPHS), help="numbers of operators")
    parser.add_argument("--seeds", type=int, default=4, help="graphs of each size")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the exact search, for each graph")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    for wanted in options.networks:
        board, name, *limits = wanted.split(":")
        ram = {memory: int(most) for memory, _, most in (limit.partition("=") for limit in limits)}
        results.setdefault("networks", {})[wanted] = stamped(network(board, name, ram))
        print(wanted, json.dumps(results["networks"][wanted]), flush=True)
        write_result(options.output, results)
    for size in options.graphs:
        found = [graph(seed, size, options.seconds) for seed in range(options.seeds)]
        results.setdefault("graphs", {})[str(size)] = stamped({"problems": found})
        print(size, json.dumps(results["graphs"][str(size)]), flush=True)
        write_result(options.output, results)
    return 0


def network(board: str, name: str, ram: dict[str, int]) -> dict[str, Any]:
    """A network in one memory and in all, on the board."""
    with TemporaryDirectory(prefix="hierarchy_") as temporary:
        folder = Path(temporary)
        onnx.save(zoo.build(name), folder / f"{name}.onnx")
        module = tvm_ext.load(folder / f"{name}.onnx")
        options = tvm_ext.BuildOptions(verify=("host", "qemu"), ram=ram or None)
        packages = {
            memories: tvm_ext.build(module, board, folder / memories, replace(options, memories=memories))
            for memories in ("default", "all")
        }
        inputs = random_inputs({n: (spec.shape, spec.dtype) for n, spec in packages["all"].inputs.items()}, 5)
        one, several = (packages[memories].run_board([inputs]) for memories in ("default", "all"))
        for key, array in one.outputs[0].items():
            np.testing.assert_array_equal(several.outputs[0][key].view(np.uint8), array.view(np.uint8))
        report = packages["all"].report
        before, after = (packages[memories].report["prediction"]["cycles"] for memories in ("default", "all"))
        kernels = [step["kernel"] for step in report["steps"]]
        return {
            "predicted_cycles_one_memory": before,
            "predicted_cycles_places_alone": _without(CUTS, module, board, options),
            "predicted_cycles_without_tiles": _without(TILES, module, board, options),
            "predicted_cycles": after,
            "times_as_fast": round(before / after, 2),
            "moved_planned": report["prediction"]["moved"],
            "moved_counted": report["verify"]["qemu"]["moved"],
            "transfers": kernels.count("dma") + kernels.count("copy"),
            "used_bytes": {m["name"]: m["used_bytes"] for m in report["memories"] if m["kind"] == "ram"},
            "instructions_one_memory": one.instructions,
            "instructions": several.instructions,
        }


def _without(
    what: tuple[str, Callable[..., Any]], module: tvm.IRModule, board: str, options: tvm_ext.BuildOptions
) -> int:
    """Predicted cycles in all memories where a function of the compiler does nothing."""
    platform = tvm_ext.Platform.load(board)
    with mock.patch(*what):
        found = compile_module(module, platform, replace(options, memories="all"))
    return round(predicted_cycles(found.program, time_model(platform)))


def graph(seed: int, size: int, seconds: float) -> dict[str, Any]:
    """A random graph: predicted cycles of our plan, and the bound of the exact search."""
    from benchmarks.memory_exact import fastest

    problem = random_problem(seed, size)
    begin = perf_counter()
    ours = problem.predicted_cycles(assign(problem))
    taken = perf_counter() - begin
    exact = fastest(problem, seconds)
    return {
        "seed": seed,
        "one_memory": round(problem.predicted_cycles(problem.at_home())),
        "ours": round(ours),
        "bound": round(exact.bound),
        "above_bound": round(ours / exact.bound - 1, 4),
        "proved": exact.proved,
        "seconds": round(taken, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
