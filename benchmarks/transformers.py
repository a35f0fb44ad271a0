"""An encoder block of a transformer, float and int8, attention whole and by rows: arena and instructions.

    python benchmarks/transformers.py

64 tokens, 64 wide, 8 heads; the scores of all heads take 32,768 elements. `whole` is the plan of fewest bytes in which
they all lie there at once, and the fewest instructions; by rows is the least that `--ram` comes to. Tensors lie in one
memory. Instructions are counted in QEMU over one run; they are not cycles.
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
from tests.support.transformer_models import encoder_block  # noqa: E402
from tvm_ext import BuildOptions  # noqa: E402
from tvm_ext.core.options import Quantize  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "transformers.json"
PLATFORMS = ("cortex_m4", "cortex_m55")
TOKENS, WIDTH, HEADS = 64, 64, 8
BUDGETS: dict[str, dict[str, int | None]] = {
    "float32": {"whole": None, "by rows": 57344},
    "int8": {"whole": None, "by rows": 14848},
}
"""Element type -> name of a plan -> bytes that tensors may take: the least whole KiB or half that can be met."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    found = {
        platform: {
            dtype: {plan: built(platform, dtype, ram) for plan, ram in plans.items()}
            for dtype, plans in BUDGETS.items()
        }
        for platform in PLATFORMS
    }
    write_result(options.results, stamped({"processors": found}))
    return 0


def built(platform: str, dtype: str, ram: int | None) -> dict[str, Any]:
    """Figures of one package, which computes what it says on both the host and the board."""
    samples = np.random.default_rng(0).standard_normal((6, 1, TOKENS, WIDTH)).astype(np.float32)
    quantize: Quantize = "int8" if dtype == "int8" else "none"
    options = BuildOptions(quantize=quantize, ram=ram, memories="default")
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
    print(platform, dtype, ram, figures, flush=True)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
