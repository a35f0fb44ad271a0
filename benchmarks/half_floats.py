"""DS-CNN and ResNet-8 in float16 beside float32: constants, arena, instructions, errors beside onnxruntime.

    python benchmarks/half_floats.py
    python benchmarks/half_floats.py ResNet-8       the other's result is kept

The float32 files lie in `../shared/models`; float16 is what a converter makes of them: all tensors in 16 bits, casts at
inputs and outputs. Instructions are counted in QEMU over one run; they are not cycles.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
from onnx import TensorProto

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tvm_ext  # noqa: E402
from benchmarks.measure.commit import stamped, write_result  # noqa: E402
from tests.support.narrow_models import narrowed  # noqa: E402

SHARED = Path(os.environ.get("TVM_EXT_SHARED", ROOT.parent / "shared"))
RESULTS = ROOT / "benchmarks" / "results" / "half_floats.json"
NETWORKS = {"DS-CNN": "kws_fp32", "ResNet-8": "resnet_fp32"}
PLATFORMS = ("cortex_m4", "cortex_m55")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("networks", nargs="*", help="beginnings of names; default: all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    kept = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    for title, name in NETWORKS.items():
        if options.networks and not title.startswith(tuple(options.networks)):
            continue
        wide = onnx.load(SHARED / "models" / f"{name}.onnx")
        forms = {"float32": wide, "float16": narrowed(wide, TensorProto.FLOAT16)}
        found = {platform: {kind: measured(form, platform) for kind, form in forms.items()} for platform in PLATFORMS}
        kept[title] = stamped({"processors": found})
        print(title, kept[title], flush=True)
        write_result(options.results, kept)
    return 0


def measured(model: onnx.ModelProto, platform: str) -> dict[str, Any]:
    """Figures of a package that agrees with onnxruntime on the host and on the board."""
    with TemporaryDirectory(prefix="tvm_ext_") as folder:
        path = Path(folder) / "network.onnx"
        onnx.save(model, path)
        options = tvm_ext.BuildOptions(verify=("host", "qemu"))
        report = tvm_ext.build(tvm_ext.load(path), platform, Path(folder) / "out", options).report
    verified = report["verify"]["qemu"]
    assert verified["passed"] and verified["reference"] == "onnxruntime", "it computes what the model means"
    return {
        "weights_bytes": report["weights_bytes"], "arena_bytes": report["arena_bytes"],
        "instructions": verified["instructions"], "macs": report["macs"], "max_rel_error": verified["max_rel_error"],
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
