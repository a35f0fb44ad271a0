"""Products with weights of few bits that have a scale for each block of input channels, as onnxruntime has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from tests.models.onnx_models import model_of, saved
from tests.support.packages import HOST_ONLY
from tests.support.sweeps import some_of
from tvm_ext.core.errors import UnsupportedModel

DEPTH, CHANNELS = 40, 5


def product(
    bits: int = 4, block: int = 16, zero_points: str = "packed", depth: int = DEPTH, **inputs: str
) -> onnx.ModelProto:
    """x float32[3, K] times K x N weights, and a bias. zero_points: none, packed, or numbers."""
    random, blocks = np.random.default_rng(bits), -(-depth // block)
    arrays = {
        "b": random.integers(0, 256, (CHANNELS, blocks, block * bits // 8)).astype("uint8"),
        "s": random.uniform(0.01, 0.1, CHANNELS * blocks).astype("float32"),
        "packed": random.integers(0, 256, CHANNELS * -(-blocks * bits // 8)).astype("uint8"),
        "numbers": random.uniform(0, 8, (CHANNELS, blocks)).astype("float32"),
        "bias": random.normal(size=CHANNELS).astype("float32"), "order": np.zeros(depth, "int32"),
    }  # fmt: skip
    names = {"b": "b", "s": "s", "zero_points": zero_points, "order": "", "bias": "bias"} | inputs
    attributes = {"K": depth, "N": CHANNELS, "bits": bits, "block_size": block}
    node = helper.make_node("MatMulNBits", ["x", *names.values()], ["y"], domain="com.microsoft", **attributes)
    arrays = {name: array for name, array in arrays.items() if name in names.values()}
    return model_of([node], {"x": (3, depth)}, ["y"], constants=arrays, opset=21, domains=["com.microsoft"])


@pytest.mark.parametrize(
    "case", some_of([(4, "packed")], sweep=[(4, ""), (4, "numbers"), (8, "packed"), (2, "packed")])
)
def test_as_onnxruntime_has_it(case: tuple[int, str], tmp_path: Path) -> None:
    bits, zero_points = case
    path = saved(product(bits, zero_points=zero_points), tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY)
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "onnxruntime"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (product(bias="", order="order"), "an order of its own for input channels"),
        (product(bits=5), "weights of 5 bits; 2, 4 and 8 are read"),
        (product(s="x"), "its weights, scales or zero points depend on data"),
    ],
)
def test_refused(model: onnx.ModelProto, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved(model, tmp_path))
