"""Sequences and optionals of ONNX whose lengths and positions are known at import, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relay_passes.dataflow import bindings, op_name
from tests.models.agree import agree
from tests.models.onnx_models import model_of, saved
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load

X = np.random.default_rng(3).normal(size=(4, 6)).astype("float32")
NUMBERS = {"zero": 0, "one": 1, "last": -1, "two": 2, "nine": 9}
CONSTANTS = {name: np.array(value, "int64") for name, value in NUMBERS.items()} | {
    "parts": np.array([1, 3, 2], "int64"), "odd": np.array([1, 1], "int64"), "yes": np.array(True)
}  # fmt: skip


def node(kind: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), **attributes)


def of(nodes: list[onnx.NodeProto], results: list[object], **shapes: tuple[int, ...]) -> onnx.ModelProto:
    return model_of(nodes, {"x": X.shape, **shapes}, results, constants=CONSTANTS, opset=18)


def test_splits_and_joins(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", "x parts", "three", axis=1),
        node("SequenceAt", "three one", "a"),
        node("SequenceAt", "three last", "b"),
        node("SplitToSequence", "x", "rows", axis=0, keepdims=0),
        node("SequenceAt", "rows two", "c"),
        node("ConcatFromSequence", "rows", "d", axis=-1, new_axis=1),
        node("SplitToSequence", "x nine", "whole", axis=1),
        node("ConcatFromSequence", "whole", "e", axis=0),
        node("SplitToSequence", "x two", "pairs", axis=0),
        node("SequenceErase", "pairs zero", "late"),
        node("SequenceInsert", "late c2", "longer"),
        node("SequenceInsert", "longer c3 last", "longest"),
        node("Identity", "longest", "same"),
        node("ConcatFromSequence", "same", "f", axis=0),
        node("SequenceLength", "same", "g"),
    ]
    nodes[10:10] = [node("SequenceAt", "pairs one", "c2"), node("Neg", "c2", "c3")]
    mod = agree(saved(of(nodes, ["a", "b", "c", "d", "e", "f", ("g", TensorProto.INT64)]), tmp_path), {"x": X})
    moves = {"relax.strided_slice", "relax.concat", "relax.stack", "relax.reshape", "relax.negative"}
    assert {op_name(binding.value) for binding in bindings(mod["main"])} <= moves


def test_a_loop_fills_a_list(tmp_path: Path) -> None:
    """As exporters of scripted PyTorch write it: an empty list, and an element more in each iteration."""
    info = helper.make_tensor_value_info
    scalar = [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, [])]
    body = helper.make_graph(
        [
            node("Gather", "x i", "row", axis=0),
            node("Tanh", "row", "bent"),
            node("SequenceInsert", "list bent", "list_next"),
            node("Identity", "go", "go_next"),
        ],
        "body",
        [*scalar, helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None)],
        [
            info("go_next", TensorProto.BOOL, []),
            helper.make_tensor_sequence_value_info("list_next", TensorProto.FLOAT, None),
        ],
    )
    nodes = [
        node("SequenceEmpty", "", "empty"),
        node("Loop", "two yes empty", "filled", body=body),
        node("ConcatFromSequence", "filled", "y", axis=0, new_axis=1),
    ]
    agree(saved(of(nodes, ["y"]), tmp_path), {"x": X})


def test_maps_and_optionals(tmp_path: Path) -> None:
    tensor = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Mul", "element element", "square")], "body",
        [tensor("element", TensorProto.FLOAT, None)], [tensor("square", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        node("SplitToSequence", "x two", "pairs", axis=0),
        node("SequenceMap", "pairs", "squares", body=body),
        node("ConcatFromSequence", "squares", "a", axis=0),
        node("Optional", "a", "maybe"),
        node("OptionalHasElement", "maybe", "b"),
        node("OptionalGetElement", "maybe", "c"),
    ]
    agree(saved(of(nodes, ["a", ("b", TensorProto.BOOL), "c"]), tmp_path), {"x": X})


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("SequenceConstruct", "x x", "s"), node("SequenceLength", "s", "y")], "graph output, once"),
        ([node("SequenceConstruct", "x x", "s"), node("Relu", "s", "y")], "no static size, where a tensor is read"),
        (
            [
                node("SequenceConstruct", "x x", "s"),
                node("SequenceInsert", "s s", "t"),
                node("SequenceAt", "t one", "y"),
            ],
            "where a tensor is read",
        ),
        ([node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s nine", "y")], "position 9 of a sequence of 2"),
        ([node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s n", "y")], "that it takes depends on data"),
        ([node("SequenceEmpty", "", "s"), node("ConcatFromSequence", "s", "y", axis=0)], "a sequence without elements"),
        ([node("SplitToSequence", "x odd", "s"), node("SequenceAt", "s one", "y")], r"parts of \[1, 1\] of an axis"),
        ([node("SplitToSequence", "long", "s"), node("SequenceAt", "s one", "y")], "a sequence of 2000 elements; 1024"),
        ([node("Optional", "x", "o"), node("SequenceAt", "o one", "y")], "its input is no sequence"),
        ([node("Optional", "", "s"), node("OptionalGetElement", "s", "y")], "an optional without a value is read"),
    ],
)
def test_refused(nodes: list[onnx.NodeProto], reason: str, tmp_path: Path) -> None:
    """A node of another domain, with which ONNX's inference does not refuse these first."""
    other = helper.make_node("Gelu", ["x"], ["z"], domain="com.microsoft")
    model = model_of([*nodes, other], {"x": X.shape, "n": (), "long": (2000,)}, ["y", "z"],
                     constants=CONSTANTS, opset=18, domains=["com.microsoft"])  # fmt: skip
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    if "graph output" in reason:
        model.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None))
    with pytest.raises(UnsupportedModel, match=reason):
        load(saved(model, tmp_path))


def test_a_branch_does_not_choose_a_sequence(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    branches = {
        f"{name}_branch": helper.make_graph([node("SequenceConstruct", given, "s")], name, [], [sequence])
        for name, given in (("then", "x x"), ("else", "x x x"))
    }
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Greater", "sum none", "is_above"),
        node("If", "is_above", "s", **branches),
        node("SequenceAt", "s one", "y"),
    ]
    constants = CONSTANTS | {"none": np.array(0, "float32")}
    model = model_of(nodes, {"x": X.shape}, ["y"], constants=constants, opset=18)
    with pytest.raises(UnsupportedModel, match="which would give one of two sequences"):
        load(saved(model, tmp_path))
