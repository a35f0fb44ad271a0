"""RecognizeDynamicLayers: ONNX's layers of integers quantized at run time become layers of range_quantize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

import tvm_ext
from relay_passes.dataflow import array_of, bindings, op_name
from relay_passes.simplify.recognize_dynamic_layers import RecognizeDynamicLayers
from tests.models.onnx_models import model_of, saved
from tvm_ext.core.decisions.composites import OwnRange
from tvm_ext.core.names import RANGE_QUANTIZE

NODE = helper.make_node


def layer(kind: str = "ConvInteger", *, scale: int = 1, zero: int = 0, **changed: str) -> onnx.ModelProto:
    """x quantized at run time, times weights, brought to real numbers. scale: how many of the weights.

    changed: `z`, `s`: other zero points and scales of activations; `sums`: an output that is the sums themselves.
    """
    random = np.random.default_rng(0)
    shape = {"ConvInteger": (4, 3, 3, 3), "MatMulInteger": (6, 4)}[kind]
    scales = random.uniform(0.01, 0.02, scale).astype(np.float32)
    many = {"ConvInteger": (1, scale, 1, 1), "MatMulInteger": (scale,)}[kind]
    constants = {
        "w": random.integers(-127, 128, shape).astype(np.int8), "zw": np.int8(zero),
        "t": scales.reshape(many if scale > 1 else ()), "fixed": np.float32(0.1), "known": np.uint8(3),
    }  # fmt: skip
    nodes = [
        NODE("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        NODE(kind, ["q", "w", changed.get("z", "z"), "zw"], ["sums"]),
        NODE("Cast", ["sums"], ["real"], to=onnx.TensorProto.FLOAT),
        NODE("Mul", [changed.get("s", "s"), "t"], ["factor"]),
        NODE("Mul", ["real", "factor"], ["y"]),
    ]
    extent = (1, 3, 5, 5) if kind == "ConvInteger" else (2, 6)
    types = {"sums": onnx.TensorProto.INT32, "real": onnx.TensorProto.FLOAT}
    outputs = ["y", *((name, types[name]) for name in [changed.get("sums")] if name)]
    return model_of(nodes, {"x": extent}, outputs, constants=constants)


def recognized(model: onnx.ModelProto, folder: Path) -> list[relax.VarBinding]:
    before = tvm_ext.load(saved(model, folder))
    after = RecognizeDynamicLayers()(before)
    relax.analysis.well_formed(after)
    found = bindings(after["main"])
    if not any(op_name(binding.value) == RANGE_QUANTIZE for binding in found):
        tvm.ir.assert_structural_equal(after, before)
    return found


@pytest.mark.parametrize("scale", [1, 4])
@pytest.mark.parametrize(("kind", "product", "axis"), [
    ("ConvInteger", "relax.nn.conv2d", 0), ("MatMulInteger", "relax.matmul", 1),
])  # fmt: skip
def test_a_layer(kind: str, product: str, axis: int, scale: int, tmp_path: Path) -> None:
    ranged, weights, layer_, *rest = recognized(layer(kind, scale=scale), tmp_path)
    assert [op_name(b.value) for b in (ranged, weights, layer_)] == [RANGE_QUANTIZE, "relax.dequantize", product]
    assert OwnRange.read(ranged.value) == OwnRange(meaning="onnx") and ranged.value.args[0].name == "x"
    assert array_of(weights.value.args[1]).size == scale and int(weights.value.attrs.axis) == axis
    assert layer_.var.name == "y" and str(layer_.var.ty.dtype) == "float32" and not rest


def test_weights_around_a_zero_point(tmp_path: Path) -> None:
    """They are told by their distances from it, as long as these fit int8."""
    few = layer(zero=0)
    weights = next(tensor for tensor in few.graph.initializer if tensor.name == "w")
    small = (onnx.numpy_helper.to_array(weights) // 2).astype(np.int8)
    weights.CopyFrom(onnx.numpy_helper.from_array(small, "w"))
    zero = next(tensor for tensor in few.graph.initializer if tensor.name == "zw")
    zero.CopyFrom(onnx.numpy_helper.from_array(np.int8(5), "zw"))
    _, moved, _ = recognized(few, tmp_path)
    np.testing.assert_array_equal(array_of(moved.value.args[0]), small - 5)


@pytest.mark.parametrize("changed", [
    {"zero": 100}, {"z": "known"}, {"s": "fixed"}, {"sums": "sums"}, {"sums": "real"},
], ids=str)  # fmt: skip
def test_others_are_left_alone(changed: dict[str, object], tmp_path: Path) -> None:
    found = recognized(layer(**changed), tmp_path)  # type: ignore[arg-type]
    assert all(op_name(binding.value) != RANGE_QUANTIZE for binding in found)
