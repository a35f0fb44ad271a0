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
from tvm_ext import BuildOptions, Limits
from tvm_ext.core.decisions.composites import RepeatedStep
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


def multiplying(*, most: int | None, below: int | None = None) -> onnx.ModelProto:
    """x @ w, while its first element is above 0, and its counter below a constant. most: None for an input `n`."""
    nodes = [
        NODE("MatMul", ["v", "w"], ["product"]),
        NODE("Add", ["i", "one_more"], ["next"]),
        NODE("ReduceMin", ["product"], ["least"], keepdims=0),
        NODE("Greater", ["least", "zero"], ["positive"]),
        NODE("Less", ["next", "below"], ["counts"]),
        NODE("And", ["positive", "counts"], ["on"]) if below else NODE("Identity", ["positive"], ["on"]),
    ]
    given = [
        VALUE("i", TensorProto.INT64, ()),
        VALUE("go_in", TensorProto.BOOL, ()),
        VALUE("v", TensorProto.FLOAT, (1, 4)),
    ]
    body = helper.make_graph(
        nodes, "body", given, [VALUE("on", TensorProto.BOOL, ()), VALUE("product", TensorProto.FLOAT, (1, 4))]
    )
    constants = {"yes": np.array(True), "w": np.eye(4, k=1, dtype=np.float32) + np.eye(4, dtype=np.float32) / 2,
                 "one_more": np.array(1), "zero": np.array(0, np.float32), "below": np.array(below or 0)}  # fmt: skip
    constants |= {} if most is None else {"n": np.array(most)}
    model = model_of(
        [NODE("Loop", ["n", "yes", "x"], ["y"], "loop", body=body)], {"x": (1, 4)}, ["y"], constants=constants
    )
    if most is None:
        model.graph.input.append(VALUE("n", TensorProto.INT64, ()))
    return model


NEVER = (1 << 63) - 1
"""What exporters write for a Loop without a largest number of iterations."""


@pytest.mark.parametrize(
    ("model", "limits", "count"),
    [
        (multiplying(most=6), Limits(), 6),
        (multiplying(most=NEVER, below=9), Limits(), 9),
        (multiplying(most=4, below=9), Limits(), 4),
        (multiplying(most=None), Limits(iterations=12), 12),
    ],
)
def test_bounds(model: onnx.ModelProto, limits: Limits, count: int, tmp_path: Path) -> None:
    """From the Loop, from a counter in its condition, or from the user."""
    with pytest.warns(ModelNotice, match=f"after at most {count} iterations"):
        module = tvm_ext.load(saved(model, tmp_path), states={}, limits=limits)
    (loop,) = [step for _, func in module.functions_items() if (step := RepeatedStep.read(func)).count]
    assert loop.is_open and loop.count == count


def test_a_number_of_iterations_that_is_an_input(tmp_path: Path) -> None:
    """It may be 0. The report has the cost of no iteration beside that of as many as the user allows."""
    model = multiplying(most=None)
    with pytest.warns(ModelNotice, match="after at most 12 iterations"):
        module = tvm_ext.load(saved(model, tmp_path), states={}, limits=Limits(iterations=12))
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=()))
    assert (package.report["macs_best_case"], package.report["macs"]) == (0, 12 * 16)
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    with package.session() as session:
        for count in (0, 1, 3, 12):
            for x in (np.ones((1, 4), np.float32), np.array([[1, 1, 1, -1]], np.float32)):
                inputs = {"x": x, "n": np.array(count)}
                np.testing.assert_allclose(session.run(inputs)["y"], runtime.run(None, inputs)[0], rtol=1e-6)


def test_a_warning_of_loops_that_always_run_equally_often(tmp_path: Path) -> None:
    samples = {"x": np.full((3, 1, 4), -1, np.float32)}
    np.savez(tmp_path / "samples.npz", **samples)
    with pytest.warns(ModelNotice):
        module = tvm_ext.load(saved(multiplying(most=6), tmp_path), states={})
        package = tvm_ext.build(
            module, "host", tmp_path / "out", BuildOptions(), verify_inputs=tmp_path / "samples.npz"
        )
    assert any(
        "the loop loop runs 1 iterations with each of" in text for text in package.report["verify"]["host"]["warnings"]
    )


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (multiplying(most=NEVER), "no largest number of iterations .*; give one with --limit iterations="),
        (halving(inputs="open_go_x"), "no largest number of iterations"),
        (halving(scanned=True), "its scanned outputs have an element for each iteration that runs"),
    ],
)
def test_refused(model: onnx.ModelProto, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved(model, tmp_path))
