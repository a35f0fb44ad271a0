"""An encoder block of a transformer, float and int8, attention whole and in less memory: arena and instructions.

    python benchmarks/transformers.py

64 tokens, 64 wide, 8 heads; the scores of all heads take 32,768 elements. `whole` is the plan of fewest instructions,
in which they all lie there at once; `in a sixth` is that within a sixth of its arena, where there is one; `least` is
the one of fewest bytes. Input and output lie in the arena, or with the application. Tensors lie in one memory.
Instructions are counted in QEMU over one run; they are not cycles.
"""

from __future__ import annotations

import argparse
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
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from benchmarks.measure.whole_layers import NO_SHORTAGE  # noqa: E402
from tests.support.transformer_models import encoder_block  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402
from tvm_ext.core.errors import DoesNotFit  # noqa: E402
from tvm_ext.core.options import Io, Quantize  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "transformers.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
TOKENS, WIDTH, HEADS = 64, 64, 8
DTYPES: tuple[str, ...] = ("float32", "int8")
PORTS: tuple[Io, ...] = ("arena", "caller")
SHARE = 6
"""Part of the whole's arena that one of the plans is to do with."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found = {
        platform: {dtype: {io: plans(platform, dtype, io) for io in PORTS} for dtype in DTYPES}
        for platform in PLATFORMS
    }
    write_result(options.results, stamped({"processors": found}))
    return 0


def plans(platform: str, dtype: str, io: Io) -> dict[str, dict[str, Any]]:
    """Figures by the name of a plan."""
    whole = built(platform, dtype, io, NO_SHORTAGE)
    least = nearest(platform, dtype, io)
    found = {"whole": whole}
    if whole["arena_bytes"] // SHARE >= least:
        found["in a sixth"] = built(platform, dtype, io, whole["arena_bytes"] // SHARE)
    return {**found, "least": built(platform, dtype, io, least)}


def nearest(platform: str, dtype: str, io: Io) -> int:
    """Fewest bytes that tensors can do with."""
    try:
        built(platform, dtype, io, 1)
    except DoesNotFit as error:
        assert error.nearest_bytes is not None, "only the arena is too small"
        return error.nearest_bytes
    raise AssertionError("nothing does with one byte")


def built(platform: str, dtype: str, io: Io, ram: int) -> dict[str, Any]:
    """Figures of one package, which computes what it says on both the host and the board.

    Raises DoesNotFit.
    """
    samples = np.random.default_rng(0).standard_normal((6, 1, TOKENS, WIDTH)).astype(np.float32)
    quantize: Quantize = "int8" if dtype == "int8" else "none"
    options = BuildOptions(quantize=quantize, ram=ram, memories="default", io=io)
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        model = Path(name) / "block.onnx"
        onnx.save(encoder_block(TOKENS, WIDTH, HEADS), model)
        calibration = {"x": samples} if dtype == "int8" else None
        report = tvm_ext.build(
            tvm_ext.load(model), platform, Path(name) / "package", options, calibration=calibration
        ).report
    assert report["verify"]["host"]["passed"] and report["verify"]["qemu"]["passed"], "it computes what it says"
    figures = {
        "arena_bytes": report["arena_bytes"], "instructions": report["verify"]["qemu"]["instructions"],
        "macs": report["macs"],
    }  # fmt: skip
    print(platform, dtype, io, ram, figures, flush=True)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
