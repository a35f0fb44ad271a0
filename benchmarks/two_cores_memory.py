"""Bytes of networks that two equal cores share, beside those of one core, and their predicted cycles.

    python benchmarks/two_cores_memory.py --output benchmarks/results/two_cores_memory.json
    python benchmarks/two_cores_memory.py --networks resnet8_int8 random_3_fp32 --output /tmp/memory.json

Known networks and networks of random layers, for `dual_m33_equal`. For both numbers of cores, also the bytes of whole
layers, which a build takes if rows in ring buffers do not save enough. Cycles are predicted, including the copies of
halos; `benchmarks/two_cores.py` counts executed instructions, waits included.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks import zoo  # noqa: E402
from benchmarks.measure.commit import measure_each  # noqa: E402
from benchmarks.networks.quantize import quantized  # noqa: E402
from benchmarks.networks.random_layers import random_layers  # noqa: E402
from codegen_c.backend.build import Compiled  # noqa: E402
from tvm_ext.compilation.pipeline import compile_module  # noqa: E402

BOARD = "dual_m33_equal"
NETWORKS = (
    "resnet8_int8", "resnet8_fp32", "mobilenet_v1_025_96_int8", "ds_cnn_int8", "ds_cnn_fp32", "autoencoder_int8",
    "mcunet_5fps_vww_int8", "words_1d_int8", "factored_int8", "wide_windows_int8", "unet_16_int8",
    "dense_block_12_int8", *(f"random_{seed}_{dtype}" for seed in range(1, 5) for dtype in ("int8", "fp32")),
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    return measure_each(arguments, __doc__, {"networks": (NETWORKS, measured)})


def measured(name: str) -> dict[str, Any]:
    """Arena bytes on one core and on two, and predicted cycles."""
    with TemporaryDirectory(prefix="two_cores_memory_") as folder:
        path = Path(folder) / f"{name}.onnx"
        onnx.save(_network(name), path)
        module, platform = tvm_ext.load(path), tvm_ext.Platform.load(BOARD)
        one, two = (
            compile_module(module, platform, tvm_ext.BuildOptions(processors=names))
            for names in ((platform.processor.name,), None)
        )
    placement = two.placement
    assert placement is not None, "the memory is large enough for both"
    cycles, alone = placement["makespan_cycles"], placement["single_processor"]["makespan_cycles"]
    return {
        "arena_bytes": two.plan.arena_bytes,
        "whole_arena_bytes": _whole_bytes(two),
        "method": two.attempts[-1].method,
        "single_arena_bytes": one.plan.arena_bytes,
        "single_whole_arena_bytes": _whole_bytes(one),
        "single_method": one.attempts[-1].method,
        "times_the_bytes": round(two.plan.arena_bytes / one.plan.arena_bytes, 3),
        "makespan_cycles": cycles,
        "copy_cycles": placement["copy_cycles"],
        "single_processor_cycles": alone,
        "times_as_fast": round(alone / cycles, 3),
        "split_operators": placement["split_operators"],
    }


def _whole_bytes(compiled: Compiled) -> int | None:
    """Return the bytes of whole layers, whether the build took them or not."""
    return next(attempt.arena_bytes for attempt in compiled.attempts if attempt.method == "whole")


def _network(name: str) -> onnx.ModelProto:
    drawn = re.fullmatch(r"random_(\d+)_(fp32|int8)", name)
    if drawn is None:
        return zoo.build(name)
    model = random_layers(name.removesuffix(f"_{drawn[2]}"), int(drawn[1]))
    return quantized(model) if drawn[2] == "int8" else model


if __name__ == "__main__":
    sys.exit(main())
