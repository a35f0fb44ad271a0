"""Layers over time on a Cortex-M4: windows of one column, then vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import QuantType

import tvm_ext
from benchmarks.networks.quantize import quantized
from tests.support.onnx_models import model_of, saved
from tvm_ext import BuildOptions


def over_time() -> onnx.ModelProto:
    """float32[1, 16, 9, 1]: depthwise over five frames, all frames to one, then vectors of many and of few channels."""
    random = np.random.default_rng(7)

    def weight(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    weights = {
        "depthwise": weight(16, 1, 5, 1), "joint": weight(24, 16, 5, 1), "wide": weight(48, 24, 1, 1),
        "few": weight(8, 48, 1, 1), "bias": weight(48),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["input", "depthwise"], ["a"], group=16),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "joint"], ["c"]),
        helper.make_node("Conv", ["c", "wide", "bias"], ["d"]),
        helper.make_node("Conv", ["d", "few"], ["output"]),
    ]
    return model_of(nodes, {"input": (1, 16, 9, 1)}, ["output"], weights)


@pytest.mark.board
@pytest.mark.parametrize("activations", [QuantType.QInt8, QuantType.QUInt8], ids=["int8", "uint8"])
def test_vectors_and_windows_of_one_column(activations: QuantType, tmp_path: Path) -> None:
    """Byte for byte by onnxruntime on both."""
    model = quantized(over_time(), activations=activations)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "cortex_m4", tmp_path / "package", BuildOptions())
    kernels = [step["kernel"] for step in package.report["steps"]]
    # The depthwise layer is computed as an image of one row, in fewer instructions than its column takes.
    assert kernels.count("qdense_dsp") == 2 and "qdepthwise_dsp" in kernels
    for target in ("host", "qemu"):
        verified = package.report["verify"][target]
        assert verified["passed"] and verified["max_abs_error"] == 0
