"""Inputs that only select: bound to constants, told of where they are not, or both branches computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import typer
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.support.bundles import written
from tests.support.onnx_models import saved
from tests.support.packages import HOST_ONLY
from tvm_ext.command_line.options import parse_bindings
from tvm_ext.core.errors import BadBundle, BadOptions, UnsupportedModel
from tvm_ext.frontends.shapes import ModelNotice

NODE, FLOAT, HIDDEN = helper.make_node, TensorProto.FLOAT, 8
INFO = helper.make_tensor_value_info


def branch(result: str, nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
    return helper.make_graph(nodes, result, [], [INFO(result, FLOAT, None)])


def selecting(then: list[onnx.NodeProto], other: list[onnx.NodeProto]) -> onnx.ModelProto:
    """`y` of the branch that the input `sr` selects: `a` of `then` for 16000, `b` of `other` else."""
    nodes = [
        NODE("Equal", ["sr", "wanted"], ["is_it"]),
        NODE("If", ["is_it"], ["y"], then_branch=branch("a", then), else_branch=branch("b", other), name="rate"),
    ]
    constants = {"wanted": np.array(16000, "int64"), "k": np.array(3, "float32"), "i": np.array([1, 0], "int64")}
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    inputs = [INFO("x", FLOAT, [2, 3]), INFO("sr", TensorProto.INT64, []), INFO("n", TensorProto.INT64, [2])]
    graph = helper.make_graph(nodes, "selecting", inputs, [INFO("y", FLOAT, None)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)


TIMES = [NODE("Mul", ["x", "k"], ["a"])]
NEGATED = [NODE("Neg", ["x"], ["b"])]
SUM = [NODE("ReduceSum", ["x"], ["b"], keepdims=0)]
X = np.arange(6, dtype="float32").reshape(2, 3)
N = np.array([1, 0], "int64")


def recurrent() -> onnx.ModelProto:
    """A cell with state, of which `sr` selects the weights: what detectors of speech look like."""
    random = np.random.default_rng(1)
    nodes = [NODE("Equal", ["sr", "wanted"], ["is_it"])]
    weights = {}
    branches = {}
    for rate, scale in (("then", 0.3), ("else", 0.1)):
        for name, shape in (("w", [1, 4 * HIDDEN, 4]), ("r", [1, 4 * HIDDEN, HIDDEN])):
            weights[f"{name}_{rate}"] = random.normal(0, scale, shape).astype("float32")
        inner = [NODE("LSTM", ["x", f"w_{rate}", f"r_{rate}", "", "", "h", "c"], [f"{rate}_{o}" for o in "yhc"],
                      hidden_size=HIDDEN)]  # fmt: skip
        outputs = [INFO(f"{rate}_{o}", FLOAT, None) for o in "hc"]
        branches[f"{rate}_branch"] = helper.make_graph(inner, rate, [], outputs)
    nodes += [NODE("If", ["is_it"], ["hn", "cn"], **branches), NODE("ReduceMean", ["hn"], ["y"], keepdims=0)]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    constants.append(numpy_helper.from_array(np.array(16000, "int64"), "wanted"))
    state = {name: INFO(name, FLOAT, [1, 1, HIDDEN]) for name in ("h", "c", "hn", "cn")}
    inputs = [INFO("x", FLOAT, [1, 1, 4]), INFO("sr", TensorProto.INT64, []), state["h"], state["c"]]
    outputs = [INFO("y", FLOAT, []), state["hn"], state["cn"]]
    graph = helper.make_graph(nodes, "cell", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)


def test_a_bound_input_takes_its_branch_alone(tmp_path: Path) -> None:
    path = saved(selecting(TIMES, SUM), tmp_path)
    mod = tvm_ext.load(tvm_ext.load(path, bind={"sr": 16000, "n": N}))
    package = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    assert [*package.inputs] == ["x"]
    np.testing.assert_array_equal(package.run({"x": X})["y"], 3 * X)
    assert tvm_ext.load(path, bind={"sr": 8000})["main"].ret_ty.shape.values[:] == []


def test_200_frames_with_state(tmp_path: Path) -> None:
    path = saved(recurrent(), tmp_path)
    mod = tvm_ext.load(path, bind={"sr": 16000}, states={"h": "hn", "c": "cn"})
    session = onnxruntime.InferenceSession(path)
    random = np.random.default_rng(0)
    h = c = np.zeros((1, 1, HIDDEN), "float32")
    with tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY).session() as ours:
        for _ in range(200):
            x = random.normal(size=(1, 1, 4)).astype("float32")
            y, h, c = session.run(["y", "hn", "cn"], {"x": x, "sr": np.array(16000, "int64"), "h": h, "c": c})
            np.testing.assert_allclose(ours.run({"x": x})["y"], y, atol=1e-6)


def test_branches_of_two_shapes_name_the_input_that_selects(tmp_path: Path) -> None:
    said = r"which would give float32\[2, 3\] or float32\[\]: input sr selects it; .*--bind sr=VALUE"
    with pytest.raises(UnsupportedModel, match=said):
        tvm_ext.load(saved(selecting(TIMES, SUM), tmp_path))


def test_both_branches_are_compiled_where_nothing_is_bound(tmp_path: Path) -> None:
    path = saved(selecting(TIMES, NEGATED), tmp_path)
    with pytest.warns(ModelNotice, match=r"rate: both branches are compiled, .* input sr selects it.*--bind sr=VALUE"):
        mod = tvm_ext.load(path)
    package = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY)
    for rate, wanted in ((16000, 3 * X), (8000, -X)):
        found = package.run({"x": X, "sr": np.array(rate, "int64"), "n": N})["y"]
        np.testing.assert_array_equal(found, wanted)


def test_a_branch_that_may_fail_is_not_computed_in_vain(tmp_path: Path) -> None:
    """Places that data give are right where the branch is taken; elsewhere they may be any."""
    with pytest.raises(UnsupportedModel, match=r"Gather: it may fail where the branch that it stands in is not taken"):
        tvm_ext.load(saved(selecting(TIMES, [NODE("Gather", ["x", "n"], ["b"])]), tmp_path))
    with pytest.warns(ModelNotice, match="both branches"):
        tvm_ext.load(saved(selecting(TIMES, [NODE("Gather", ["x", "i"], ["b"])]), tmp_path))


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ({"sx": 1}, r"no input 'sx'. Did you mean 'x'\? Inputs: x, sr, n"),
        ({"sr": 1.5}, "'sr' is of type int64, which has no such value"),
        ({"sr": "fast"}, "numbers are needed"),
        ({"sr": [1, 2]}, r"is given the shape \[2\]; the model's is \[\]"),
        ({"k": 1}, "no input 'k'"),
    ],
)
def test_values_that_cannot_be_bound(tmp_path: Path, bind: dict[str, object], message: str) -> None:
    with pytest.raises(BadOptions, match=message):
        tvm_ext.load(saved(selecting(TIMES, SUM), tmp_path), bind=bind)


def test_inputs_without_a_type_that_can_be_compiled(tmp_path: Path) -> None:
    model = selecting(TIMES, SUM)
    model.graph.input.append(INFO("word", TensorProto.STRING, []))
    with pytest.raises(BadOptions, match="input 'word' is no tensor of numbers"):
        tvm_ext.load(saved(model, tmp_path), bind={"word": 1})


def test_only_onnx_files_have_inputs_to_bind(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(selecting(TIMES, SUM), tmp_path), bind={"sr": 16000})
    with pytest.raises(BadOptions, match=r"n of a Relax module: only inputs of \.onnx files can be bound"):
        tvm_ext.load(mod, bind={"n": N})


def test_models_of_a_bundle_have_inputs_bound(tmp_path: Path) -> None:
    models = {"vad": selecting(TIMES, SUM)}
    for entry in ({"sr": 16000, "n": [1, 0]}, {"sr": "fast"}):
        path = written(tmp_path, models, {"vad": {"file": "vad.onnx", "bind": entry}})
        if entry["sr"] == 16000:
            bundle = tvm_ext.bundle(path, "host", tmp_path / "out", verify=())
            assert [*bundle.models["vad"].inputs] == ["x"]
        else:
            with pytest.raises(BadBundle, match=r"models\[0\]\.bind"):
                tvm_ext.bundle(path, "host", tmp_path / "out", verify=())


def test_texts_of_the_command_line() -> None:
    assert parse_bindings(["sr=16000", "k=1,-2.5", "a=b=true"]) == {"sr": 16000, "k": [1, -2.5], "a=b": 1}
    for texts in (["sr"], ["sr="], ["=1"], ["sr=x"], ["sr=1", "sr=2"]):
        with pytest.raises(typer.BadParameter):
            parse_bindings(texts)
