"""Default plans beside whole layers: RAM, code, predicted cycles, and instructions that QEMU counts.

    python benchmarks/default_plans.py --output benchmarks/results/default_plans.json
    python benchmarks/default_plans.py --networks cortex_m4:resnet8_fp32 --output /tmp/default_plans.json

Each network is built for a board by `optimize = "balanced"` without a limit of RAM, and once more with a limit beyond
all RAM, which takes the fastest plan: whole layers. Both run in QEMU, and their outputs must be the same bits.
"""

from __future__ import annotations

import argparse
import json
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
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.whole_layers import NO_SHORTAGE  # noqa: E402
from tvm_ext.packages.package import Package  # noqa: E402
from tvm_ext.verification.input_ranges import random_inputs  # noqa: E402

NETWORKS = (
    "cortex_m4:ds_cnn_int8",
    "cortex_m4:resnet8_int8",
    "cortex_m4:resnet8_fp32",
    "cortex_m4:mobilenet_v1_025_96_int8",
    "cortex_m4:mobilenet_v2_035_144_int8",
    "cortex_m4:mcunet_320k_int8",
    "cortex_m4:unet_16_fp32",
    "cortex_m4:words_1d_int8",
    "cortex_m4:ffn_16_128_512_int8",
    "cortex_m0plus:mobilenet_v1_025_96_int8",
    "cortex_m7:mobilenet_v2_035_144_int8",
    "cortex_m55:mobilenet_v1_025_96_int8",
)
"""board:network"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), help="board:network, or board:file")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = json.loads(options.output.read_text()) if options.output.exists() else {}
    for wanted in options.networks:
        results[wanted] = stamped(network(*wanted.split(":")))
        print(wanted, json.dumps(results[wanted]), flush=True)
        write_result(options.output, results)
    return 0


def network(board: str, name: str) -> dict[str, Any]:
    """Return the measurements of a network's default plan and of whole layers, on a board."""
    platform = tvm_ext.Platform.load(board)
    with TemporaryDirectory(prefix="default_plans_") as temporary:
        folder = Path(temporary)
        file = Path(name)
        if not file.suffix:
            file = folder / f"{name}.onnx"
            onnx.save(zoo.build(name), file)
        module = tvm_ext.load(file)
        packages = {
            "whole": tvm_ext.build(
                module, platform, folder / "whole", tvm_ext.BuildOptions(ram=NO_SHORTAGE, verify=())
            ),
            "default": tvm_ext.build(module, platform, folder / "default", tvm_ext.BuildOptions(verify=())),
        }
        inputs = random_inputs({n: (spec.shape, spec.dtype) for n, spec in packages["whole"].inputs.items()}, 5)
        runs = {plan: package.run_board([inputs]) for plan, package in packages.items()}
        for key, array in runs["whole"].outputs[0].items():
            np.testing.assert_array_equal(runs["default"].outputs[0][key].view(np.uint8), array.view(np.uint8))
        return {
            plan: {**_reported(packages[plan]), "executed_instructions": run.instructions} for plan, run in runs.items()
        }


def _reported(package: Package) -> dict[str, Any]:
    report = package.report
    return {
        "method": report["fit"]["attempts"][-1]["method"],
        "arena_bytes": sum(memory["used_bytes"] for memory in report["memories"] if memory["kind"] == "ram"),
        "code_bytes": report["flash"]["code_bytes"],
        "predicted_cycles": report["prediction"]["cycles"],
    }


if __name__ == "__main__":
    sys.exit(main())
