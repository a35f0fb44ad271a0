"""Integers of 4 and 2 bits: each in a byte, within its range."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.support.onnx_models import saved, typed_model
from tests.support.packages import HOST_ONLY
from tests.support.sweeps import some_of
from tvm_ext.core.errors import UnsupportedModel

NODE, INFO = helper.make_node, helper.make_tensor_value_info
model_with = partial(typed_model, opset=25, ir_version=13)
ALONE = tvm_ext.BuildOptions(verify=())
KINDS = {
    TensorProto.INT4: ml_dtypes.int4, TensorProto.UINT4: ml_dtypes.uint4,
    TensorProto.INT2: ml_dtypes.int2, TensorProto.UINT2: ml_dtypes.uint2,
}  # fmt: skip


@pytest.mark.parametrize("kind", some_of([TensorProto.INT4], sweep=[*KINDS][1:]))
def test_numbers_are_wrapped_by_casts_and_clipped_by_quantization(tmp_path: Path, kind: int) -> None:
    nodes = [
        NODE("Cast", ["x"], ["c"], to=kind), NODE("CastLike", ["x", "n"], ["l"]),
        NODE("QuantizeLinear", ["x", "s", "zero"], ["q"]), NODE("Cast", ["n"], ["wide"], to=TensorProto.FLOAT),
    ]  # fmt: skip
    x, dtype = np.linspace(-40, 40, 41, dtype="float32"), KINDS[kind]
    inputs = {"x": (TensorProto.FLOAT, [41]), "n": (kind, [4])}
    scale, zero = np.array(2, "float32"), np.array(1, dtype)
    model = model_with(nodes, inputs, {"c": kind, "l": kind, "q": kind, "wide": 1}, s=scale, zero=zero)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", ALONE)
    info, byte = ml_dtypes.iinfo(dtype), package.inputs["n"].dtype
    n = np.array([info.min, 0, 1, info.max], byte)
    found = package.run({"x": x, "n": n})
    wrapped = (np.trunc(x).astype("int32") - int(info.min)) % (1 << info.bits) + int(info.min)
    clipped = np.clip(np.rint(x / 2) + 1, int(info.min), int(info.max))
    for name, wanted in (("c", wrapped), ("l", wrapped), ("q", clipped), ("wide", n)):
        np.testing.assert_array_equal(found[name], wanted)
    assert byte == str(found["c"].dtype) == ("uint8" if info.min == 0 else "int8")


def test_weights_of_4_bits_are_weights_of_8_to_the_kernels(tmp_path: Path) -> None:
    """A quantized convolution whose weights have a scale for each channel; as onnxruntime has it."""
    random = np.random.default_rng(0)
    w = random.integers(-8, 8, (4, 3, 3, 3)).astype(ml_dtypes.int4)
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["q"]), NODE("DequantizeLinear", ["q", "s", "z"], ["d"]),
        NODE("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        NODE("Conv", ["d", "wd"], ["c"]),
        NODE("QuantizeLinear", ["c", "s", "z"], ["cq"]), NODE("DequantizeLinear", ["cq", "s", "z"], ["y"]),
    ]  # fmt: skip
    constants = {
        "s": np.array(0.05, "float32"), "z": np.array(3, "int8"), "w": w,
        "ws": random.uniform(0.01, 0.02, 4).astype("float32"), "wz": np.zeros(4, ml_dtypes.int4),
    }  # fmt: skip
    model = model_with(nodes, {"x": (1, [1, 3, 6, 6])}, {"y": TensorProto.FLOAT}, **constants)
    model.opset_import[0].version, model.ir_version = 21, 10
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    assert "qconv2d_host" in {step["kernel"] for step in package.report["steps"]}


def test_a_type_that_nothing_says_is_not_guessed(tmp_path: Path) -> None:
    """In a branch no inference goes: there a QuantizeLinear would be taken for one of 8 bits."""
    branch = helper.make_graph([NODE("QuantizeLinear", ["x", "s", "zero"], ["b"])], "b", [], [INFO("b", 22, None)])
    nodes = [NODE("If", ["yes"], ["q"], then_branch=branch, else_branch=branch)]
    constants = {"s": np.array(1, "float32"), "zero": np.array(1, ml_dtypes.int4), "yes": np.array(True)}
    model = model_with(nodes, {"x": (1, [4])}, {"q": TensorProto.INT4}, **constants)
    with pytest.raises(UnsupportedModel, match="may make integers of less than a byte, which no type says"):
        tvm_ext.load(saved(model, tmp_path))
