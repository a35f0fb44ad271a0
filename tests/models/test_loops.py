"""Loops whose end data decide, up to a bound: the loop in C ends where onnxruntime's does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tvm_ext
from tests.models.onnx_models import model_of, saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.shapes import ModelNotice

NODE, VALUE = helper.make_node, helper.make_tensor_value_info
NUMBERS = {"half": np.array(0.5, np.float32), "one": np.array(1.0, np.float32), "most": np.array(5, np.int64),
           "yes": np.array(True), "no": np.array(False)}  # fmt: skip


def halving(*, inputs: str = "most_go_x", condition: str = "large", scanned: bool = False) -> onnx.ModelProto:
    """x halved, and the passes counted, while its largest element is above 1."""
    nodes = [
        NODE("Mul", ["v", "half"], ["halved"]),
        NODE("Add", ["count", "one"], ["counted"]),
        NODE("ReduceMax", ["halved"], ["largest"], keepdims=0),
        NODE("Greater", ["largest", "one"], ["large"]),
        NODE("Identity", [condition], ["on"]),
    ]
    given = [VALUE("i", TensorProto.INT64, ()), VALUE("go_in", TensorProto.BOOL, ()),
             VALUE("v", TensorProto.FLOAT, (1, 4)), VALUE("count", TensorProto.FLOAT, ())]  # fmt: skip
    results = [VALUE("on", TensorProto.BOOL, ()), VALUE("halved", TensorProto.FLOAT, (1, 4)),
               VALUE("counted", TensorProto.FLOAT, ())]  # fmt: skip
    results += [VALUE("largest", TensorProto.FLOAT, ())] if scanned else []
    body = helper.make_graph(nodes, "body", given, results)
    outside = [
        NODE("ReduceMax", ["x"], ["first"], keepdims=0),
        NODE("Greater", ["first", "one"], ["go"]),
        NODE("Sub", ["one", "one"], ["none"]),
    ]
    names = ["" if name == "open" else name for name in inputs.split("_")]
    outputs = ["y", "passes", *(["each"] if scanned else [])]
    loop = NODE("Loop", [*names, "none"], outputs, "loop", body=body)
    return model_of([*outside, loop], {"x": (1, 4)}, outputs, constants=NUMBERS)


@pytest.mark.parametrize("inputs", ["most_go_x", "most_yes_x"])
def test_it_ends_where_onnxruntime_does(inputs: str, tmp_path: Path) -> None:
    """After none, some, and as many passes as there may be; the condition before the first is known, or not."""
    model = halving(inputs=inputs)
    with pytest.warns(ModelNotice, match="loop: data end the loop, after at most 5 iterations"):
        mod = tvm_ext.load(saved(model, tmp_path), states={})
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    made = set[float]()
    with package.session() as session:
        for scale in (0.5, 1.5, 3.0, 7.0, 1000.0):
            x = np.array([[1.0, -0.5, 0.25, 0.75]], np.float32) * np.float32(scale)
            y, passes = runtime.run(None, {"x": x})
            found = session.run({"x": x})
            np.testing.assert_array_equal(found["y"], y)
            np.testing.assert_array_equal(found["passes"], passes)
            made.add(float(passes))
    assert made == ({0.0, 1.0, 2.0, 3.0, 5.0} if inputs == "most_go_x" else {1.0, 2.0, 3.0, 5.0})


def test_a_condition_that_comes_to_be_known(tmp_path: Path) -> None:
    """One pass or none, whatever the bound is."""
    with pytest.warns(ModelNotice, match="loop: all 1 iterations .* no step .*: it ends after its first iteration"):
        mod = tvm_ext.load(saved(halving(condition="no"), tmp_path), states={})
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["passed"]
    found = package.run({"x": np.full((1, 4), 16, np.float32)})
    assert found["passes"] == 1 and (found["y"] == 8).all()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (halving(inputs="open_go_x"), "no largest number of iterations"),
        (halving(scanned=True), "its scanned outputs have an element for each iteration that runs"),
    ],
)
def test_refused(model: onnx.ModelProto, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved(model, tmp_path))
