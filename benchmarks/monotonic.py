"""Does a larger budget ever cost more? Every 64 B between the least and the whole, for four networks.

    python benchmarks/monotonic.py --output benchmarks/results/monotonic.json

Instructions are modelled, as those that choose. `steps` holds the budgets that lead to one result as one row: the
smallest and the largest of them. `dearer` lists budgets that cost more than the next smaller one; `nearest_bytes` is
what the error names where one byte is asked for, and `nearest_met` whether a model compiles within it. `whole_bytes`
is the arena without a budget.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import tvm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.whole_layers import NO_SHORTAGE  # noqa: E402
from codegen_c.backend.build import Compiled  # noqa: E402
from tvm_ext.compilation.pipeline import compile_model, compile_within  # noqa: E402
from tvm_ext.core.errors import DoesNotFit  # noqa: E402
from tvm_ext.core.platform import Platform  # noqa: E402

NETWORKS = ("digits_fp32", "digits_int8", "ds_cnn_int8", "resnet8_int8")
PLATFORM = "cortex_m4"
STEP_BYTES = 64


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {**stamped({"platform": PLATFORM, "step_bytes": STEP_BYTES}), "networks": {}}
    for network in options.networks:
        found = walked(compile_within(module(network), Platform.load(PLATFORM), tvm_ext.BuildOptions()))
        results["networks"][network] = found
        print(network, found["num_budgets"], "budgets,", len(found["steps"]), "results, dearer:", found["dearer"])
        write_result(options.output, results)
    return 1 if any(found["dearer"] or not found["nearest_met"] for found in results["networks"].values()) else 0


def module(network: str) -> tvm.IRModule:
    """The digits of the tutorials, float or quantized here, or a network of the zoo."""
    digits = ROOT / "tutorials" / "digits"
    if network == "digits_fp32":
        return tvm_ext.load(digits / "digits.onnx")
    if network == "digits_int8":
        options = tvm_ext.BuildOptions(quantize="int8")
        loaded = tvm_ext.load(digits / "digits.onnx")
        return compile_model(loaded, Platform.load(PLATFORM), options, digits / "digits_calibration.npz")[0]
    with TemporaryDirectory(prefix="monotonic_") as folder:
        path = Path(folder) / f"{network}.onnx"
        onnx.save(zoo.build(network), path)
        return tvm_ext.load(path)


def walked(within: Callable[[int | None], Compiled], step_bytes: int = STEP_BYTES) -> dict[str, Any]:
    """Results of a model from the least budget up to the whole."""
    whole = within(NO_SHORTAGE).plan.arena_bytes
    nearest = nearest_bytes(within)
    budgets = [*range(nearest, whole, step_bytes), whole]
    steps: list[dict[str, Any]] = []
    dearer: list[int] = []
    for budget in budgets:
        compiled = within(budget)
        cost = compiled.modelled_instructions
        if steps and cost > steps[-1]["modelled_instructions"]:
            dearer.append(budget)
        reached, method = compiled.plan.arena_bytes, compiled.attempts[-1].method
        result = {"arena_bytes": reached, "modelled_instructions": cost, "method": method}
        if steps and result.items() <= steps[-1].items():
            steps[-1]["budgets"][1] = budget
        else:
            steps.append(result | {"budgets": [budget, budget]})
    return {
        "whole_bytes": whole, "nearest_bytes": nearest, "nearest_met": steps[0]["arena_bytes"] <= nearest,
        "num_budgets": len(budgets), "dearer": dearer, "steps": steps,
    }  # fmt: skip


def nearest_bytes(within: Callable[[int | None], Compiled]) -> int:
    """The nearest budget that the error names where one byte is asked for."""
    try:
        return within(1).plan.arena_bytes
    except DoesNotFit as error:
        if error.nearest_bytes is None:
            raise
        return error.nearest_bytes


if __name__ == "__main__":
    sys.exit(main())
