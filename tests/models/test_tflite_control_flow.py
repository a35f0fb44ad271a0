"""IF and WHILE of TensorFlow Lite files whose conditions are known: written out, and equal to TensorFlow Lite Micro."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite

import tvm_ext
from tests.support.tflite_file import TfliteWriter
from tests.support.tflite_runners import referenced, saved_tflite, tflite_micro
from tvm_ext import BuildOptions
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadModel, UnsupportedModel

SHAPE = (1, 6)
NONE = tflite.ActivationFunctionType.NONE


def branch(operator: str, **shapes: tuple[int, ...]) -> TfliteWriter:
    """A subgraph of one operator on one tensor."""
    net = TfliteWriter()
    x = net.input("x", SHAPE, **shapes)
    net.results = [net.operator(operator, [x], net.tensor("y", SHAPE), f"{operator.capitalize()}Options")]
    return net


def counted(limit: int, *, count_type: str = "int32") -> tuple[TfliteWriter, TfliteWriter]:
    """A condition i < limit, and a body that adds 1 to i, and x to the number at place i of some weights."""
    condition, body = TfliteWriter(), TfliteWriter()
    i, _ = condition.input("i", (), count_type), condition.input("x", SHAPE)
    most = condition.constant("limit", np.array(limit, count_type))
    condition.results = [condition.operator("LESS", [i, most], condition.tensor("goes_on", (), "bool"), "LessOptions")]
    i, x = body.input("i", (), count_type), body.input("x", SHAPE)
    one = body.constant("one", np.array(1, count_type))
    after = body.operator("ADD", [i, one], body.tensor("after", (), count_type), "AddOptions",
                          FusedActivationFunction=NONE)  # fmt: skip
    weights = body.constant("weights", np.arange(1, 11, dtype=np.float32) / 4)
    weight = body.operator("GATHER", [weights, i], body.tensor("weight", ()), "GatherOptions", Axis=0)
    product = body.operator("MUL", [x, weight], body.tensor("product", SHAPE), "MulOptions",
                            FusedActivationFunction=NONE)  # fmt: skip
    body.results = [after, product]
    return condition, body


def conditional(condition: bool | None, *, then: int = 1, otherwise: int = 2, **named: Any) -> bytes:
    """IF between NEG and ABS of x, then RELU. condition: None for one that is an input."""
    net = TfliteWriter()
    x = net.input("x", SHAPE)
    known = net.input("c", (1,), "bool") if condition is None else net.constant("c", np.array([condition]))
    chosen = net.operator("IF", [known, x], net.tensor("chosen", SHAPE), "IfOptions",
                          ThenSubgraphIndex=then, ElseSubgraphIndex=otherwise)  # fmt: skip
    y = net.operator("RELU", [chosen], net.tensor("y", SHAPE))
    return net.finish([y], others=[branch("NEG"), branch("ABS")], **named)


def loop(limit: int, begin: int | None = 0, **named: Any) -> bytes:
    """x times the first weights. begin: None for a counter that is an input."""
    net = TfliteWriter()
    x = net.input("x", SHAPE)
    i = net.input("i", (), "int32") if begin is None else net.constant("i", np.array(begin, np.int32))
    results = [net.tensor("count", (), "int32"), net.tensor("scaled", SHAPE)]
    net.operator("WHILE", [i, x], results, "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    y = net.operator("ABS", [results[1]], net.tensor("y", SHAPE), "AbsOptions")
    return net.finish([y], others=counted(limit, **named))


def same_as_tflm(data: bytes, folder: Path) -> list[str]:
    """Kernels of the model, whose result is TensorFlow Lite Micro's."""
    x = np.random.default_rng(0).normal(0, 1, SHAPE).astype(np.float32)
    (found,), kernels = referenced(saved_tflite(data, folder), [x])
    np.testing.assert_array_equal(found, tflite_micro(data, [x]))
    return kernels


@pytest.mark.parametrize("condition", [True, False])
def test_the_branch_that_is_taken(condition: bool, tmp_path: Path) -> None:
    same_as_tflm(conditional(condition), tmp_path)
    nodes = [node.name for node in _nodes(tmp_path)]
    assert nodes == [f"IF_0.{'NEG' if condition else 'ABS'}_0", "RELU_1"]


def _nodes(folder: Path) -> Sequence[Any]:
    return ModelOrigin.read(tvm_ext.load(folder / "model.tflite")).nodes


@pytest.mark.parametrize(("limit", "begin"), [(3, 0), (10, 8), (2, 5)])
def test_a_loop_that_is_counted(limit: int, begin: int, tmp_path: Path) -> None:
    """Weights are those of the counter, which is a number by then; a loop may not run at all."""
    same_as_tflm(loop(limit, begin), tmp_path)
    inside = [node.operator for node in _nodes(tmp_path) if node.name.startswith("WHILE")]
    assert inside == ["GATHER", "MUL"] * max(0, limit - begin)


def test_they_stand_in_one_another(tmp_path: Path) -> None:
    """A loop whose body chooses a branch by its counter; built, run and verified by TensorFlow Lite Micro."""
    net, condition, body = TfliteWriter(), *counted(4)
    i, x = body.inputs
    most = body.constant("half", np.array(2, np.int32))
    early = body.operator("LESS", [i, most], body.tensor("early", (), "bool"), "LessOptions")
    bent = body.operator("IF", [early, body.results[1]], body.tensor("bent", SHAPE), "IfOptions",
                         ThenSubgraphIndex=3, ElseSubgraphIndex=4)  # fmt: skip
    body.results[1] = bent
    x, i = net.input("x", SHAPE), net.constant("i", np.array(0, np.int32))
    results = [net.tensor("count", (), "int32"), net.tensor("y", SHAPE)]
    net.operator("WHILE", [i, x], results, "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    data = net.finish([results[1]], others=[condition, body, branch("NEG"), branch("ABS")])
    package = tvm_ext.build(saved_tflite(data, tmp_path), "host", tmp_path / "out", BuildOptions())
    result = package.report["verify"]["host"]
    assert result["passed"] and result["reference"] == "TensorFlow Lite Micro" and list(package.outputs) == ["y"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            conditional(None),
            r"IF_0\): control flow whose condition depends on data; compute both results and choose one",
        ),
        (loop(3, None), r"WHILE_0\): control flow whose condition depends on data; only loops of a known number"),
        (loop(1 << 30), r"its operators after IF and WHILE are unrolled: 10,?001 is more than the limit nodes"),
        (loop(3, count_type="int64"), r"WHILE_0 passes 2 tensors that do not fit the inputs of subgraph 1"),
    ],
)
def test_conditions_that_are_not_known(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises((UnsupportedModel, BadModel), match=reason):
        tvm_ext.load(saved_tflite(data, tmp_path))


def test_subgraphs_that_do_not_fit(tmp_path: Path) -> None:
    other = TfliteWriter()
    other.results = [other.operator("ABS", [other.input("x", SHAPE)], other.tensor("y", SHAPE), "AbsOptions")]
    for changes, reason in (
        ({"then": 7}, r"control flow names subgraph 7"),
        ({"then": 0}, r"control flow names subgraph 0"),
    ):
        with pytest.raises(BadModel, match=reason):
            tvm_ext.load(saved_tflite(conditional(True, **changes), tmp_path))


def _with_branch(inner: TfliteWriter, results: int = 1) -> bytes:
    net = TfliteWriter()
    x, c = net.input("x", SHAPE), net.constant("c", np.array([True]))
    outputs = [net.tensor(f"y{index}", SHAPE) for index in range(results)]
    net.operator("IF", [c, x], outputs, "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=1)
    return net.finish(outputs, others=[inner])


def test_branches_that_do_not_fit(tmp_path: Path) -> None:
    calls_itself, whole, nothing = TfliteWriter(), TfliteWriter(), TfliteWriter()
    x, c = calls_itself.input("x", SHAPE), calls_itself.constant("c", np.array([True]))
    calls_itself.results = [calls_itself.operator("IF", [c, x], calls_itself.tensor("y", SHAPE), "IfOptions",
                                                  ThenSubgraphIndex=1, ElseSubgraphIndex=1)]  # fmt: skip
    whole.results = [whole.operator("ABS", [whole.input("x", SHAPE, "int32")], whole.tensor("y", SHAPE, "int32"))]
    nothing.results = [nothing.input("x", SHAPE)]
    for data, kind, reason in (
        (_with_branch(calls_itself), BadModel, r"IF_0.IF_0 calls subgraph 1, which does not exist or calls itself"),
        (_with_branch(whole), BadModel, r"IF_0 passes 1 tensors that do not fit the inputs of subgraph 1"),
        (_with_branch(branch("ABS"), 2), BadModel, r"IF_0 gives 2 results, its subgraph 1"),
        (
            _with_branch(nothing),
            UnsupportedModel,
            r"output 'y0' of control flow is the same tensor as an input, a constant",
        ),
    ):
        with pytest.raises(kind, match=reason):
            tvm_ext.load(saved_tflite(data, tmp_path))
