"""Operations that a quantized model still computes in float: its report names them, with the reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import NodeProto, helper

import tvm_ext
from tests.support.onnx_models import model_of, saved

NODE = helper.make_node


def quantized(source: str, target: str) -> list[NodeProto]:
    integers = f"{target}.int8"
    parameters = ["scale", "zero_point"]
    return [
        NODE("QuantizeLinear", [source, *parameters], [integers], name=f"quantize_{target}"),
        NODE("DequantizeLinear", [integers, *parameters], [target], name=f"dequantize_{target}"),
    ]


def test_float_operations_are_named(tmp_path: Path) -> None:
    """Relu is an integer table; CumSum has no integer kernel, so it and the borders around it compute in float."""
    nodes = [
        *quantized("x", "a"), NODE("Relu", ["a"], ["b"]), *quantized("b", "c"),
        NODE("CumSum", ["c", "axis"], ["d"], name="running_sum"), *quantized("d", "y"),
    ]  # fmt: skip
    constants = {"scale": np.float32(0.05), "zero_point": np.int8(0), "axis": np.int64(1)}
    model = model_of(nodes, {"x": (1, 4, 8, 8)}, ["y"], constants)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out")
    reasons = {tuple(left["source_nodes"]): left["reason"] for left in package.report["float_operations"]}
    assert reasons[("running_sum",)] == "the model computes it in float"
    assert reasons[("quantize_a",)] == "stands between float and integer tensors"
    assert not any("Relu" in node for nodes in reasons for node in nodes)


def test_a_float_model_has_none(tmp_path: Path) -> None:
    model = model_of([NODE("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["y"])
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out")
    assert package.report["float_operations"] == []
