"""float16 on the M55's vectors: every number as numpy has it, and a network of every kernel as onnxruntime has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto

import tvm_ext
from tests.support.onnx_models import NODE, saved, typed_model

pytestmark = pytest.mark.board
HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT


def test_every_number_is_widened_rounded_and_added(tmp_path: Path) -> None:
    """Infinities, NaN and numbers below the normal ones among them; floats beside every middle of two halves."""
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        wide = every.astype(np.float32)
        middles = ((wide.astype(np.float64) + np.roll(wide, 1)) / 2).astype(np.float32)[::7]
        floats = np.concatenate([middles, np.nextafter(middles, np.float32(np.inf)), np.float32([65519.99, 65520])])
        expected = {
            "wide": wide,
            "narrow": floats.astype(np.float16),
            "sum": np.maximum(every + np.float16(1.5), np.float16(-3)),
        }
    nodes = [
        NODE("Cast", ["x"], ["wide"], to=FLOAT), NODE("Cast", ["f"], ["narrow"], to=HALF),
        NODE("Add", ["x", "one"], ["added"]), NODE("Clip", ["added", "low"], ["sum"]),
    ]  # fmt: skip
    inputs = {"x": (HALF, [every.size]), "f": (FLOAT, [floats.size])}
    constants = {"one": np.float16([1.5]), "low": np.float16(-3)}
    model = typed_model(nodes, inputs, {"wide": FLOAT, "narrow": HALF, "sum": HALF}, **constants)
    options = tvm_ext.BuildOptions(verify=())
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "cortex_m55", tmp_path / "out", options)
    assert {step["kernel"] for step in package.report["steps"]} == {"cast_f16", "elementwise_f16"}
    found = package.run({"x": every, "f": floats}, on="qemu")
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def network() -> ModelProto:
    """Every kernel of float16: odd numbers of channels and pixels, strides, padding, a sum with an earlier tensor."""
    random = np.random.default_rng(4)
    shapes = {
        "w1": (15, 3, 3, 3), "w2": (15, 1, 3, 3), "w3": (22, 15, 1, 1), "w4": (22, 22, 3, 3), "w5": (22, 9),
        "w6": (22, 11, 1, 1), "b1": (15,), "b4": (22,),
    }  # fmt: skip
    constants = {name: random.normal(0, 0.25, shape).astype(np.float16) for name, shape in shapes.items()}
    nodes = [
        NODE("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4, strides=[2, 1]), NODE("Relu", ["c1"], ["r1"]),
        NODE("Conv", ["r1", "w2"], ["c2"], pads=[1] * 4, group=15), NODE("Relu", ["c2"], ["r2"]),
        NODE("Conv", ["r2", "w3"], ["c3"]), NODE("Conv", ["c3", "w4", "b4"], ["c4"], pads=[1] * 4),
        NODE("Add", ["c4", "c3"], ["a"]), NODE("Relu", ["a"], ["r4"]),
        NODE("MaxPool", ["r4"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        NODE("Sigmoid", ["p"], ["s"]), NODE("Conv", ["s", "w6"], ["q"], group=2),
        NODE("AveragePool", ["q"], ["v"], kernel_shape=[2, 3]),
        NODE("GlobalAveragePool", ["v"], ["g"]), NODE("Flatten", ["g"], ["f"]), NODE("MatMul", ["f", "w5"], ["m"]),
        NODE("Softmax", ["m"], ["y"], axis=-1),
    ]  # fmt: skip
    return typed_model(nodes, {"x": (HALF, [1, 3, 11, 8])}, {"y": HALF, "a": HALF, "v": HALF}, **constants)


def test_a_network_of_every_kernel(tmp_path: Path) -> None:
    """Compared with onnxruntime on the host and on the board; a convolution in groups is float32 between casts."""
    options = tvm_ext.BuildOptions(verify=("host", "qemu"))
    package = tvm_ext.build(tvm_ext.load(saved(network(), tmp_path)), "cortex_m55", tmp_path / "out", options)
    for where in ("host", "qemu"):
        verified = package.report["verify"][where]
        assert verified["passed"] and verified["reference"] == "onnxruntime"
    names = {step["kernel"] for step in package.report["steps"]}
    kinds = ("conv2d", "depthwise", "pointwise", "dense", "pool2d", "elementwise", "softmax")
    assert names - {"permute"} == {*(f"{kind}_f16" for kind in kinds), "cast_f16", "conv2d_f32"}
