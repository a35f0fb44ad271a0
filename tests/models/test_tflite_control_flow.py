"""IF and WHILE of TensorFlow Lite files: written out or, for an IF that data decide, as both branches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite

import tvm_ext
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_runners import litert, referenced, saved_tflite, tflite_micro
from tvm_ext import BuildOptions
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.shapes import ModelNotice

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
            loop(3, None),
            r"WHILE_0\): control flow that depends on data, and its condition has no counter",
        ),
        (loop(3, count_type="int64"), r"WHILE_0 passes 2 tensors that do not fit the inputs of subgraph 1"),
    ],
)
def test_conditions_that_are_not_known(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises((UnsupportedModel, BadModel), match=reason):
        tvm_ext.load(saved_tflite(data, tmp_path))


@pytest.mark.filterwarnings("ignore:.*both branches are compiled")
class TestConditionsThatDataDecide:
    def test_both_branches_equal_both_runtimes(self, tmp_path: Path) -> None:
        """The condition is an input. One branch returns its input, the other one two results in turn."""
        swapped = TfliteWriter()
        first, second = swapped.input("x", SHAPE), swapped.input("z", SHAPE)
        swapped.results = [swapped.operator("NEG", [second], swapped.tensor("y", SHAPE), "NegOptions"), first]
        as_is = TfliteWriter()
        as_is.results = [as_is.input("x", SHAPE), as_is.input("z", SHAPE)]
        net = TfliteWriter()
        x, z, c = net.input("x", SHAPE), net.input("z", SHAPE), net.input("c", (1,), "bool")
        chosen = [net.tensor("one", SHAPE), net.tensor("two", SHAPE)]
        net.operator("IF", [c, x, z], chosen, "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=2)
        y = net.operator("SUB", chosen, net.tensor("y", SHAPE), "SubOptions", FusedActivationFunction=NONE)
        data = net.finish([y], others=[swapped, as_is])
        rng = np.random.default_rng(0)
        for condition in (True, False):
            inputs = [*rng.normal(0, 1, (2, *SHAPE)).astype(np.float32), np.array([condition])]
            (found,), _ = referenced(saved_tflite(data, tmp_path), inputs)
            np.testing.assert_array_equal(found, tflite_micro(data, inputs))
            np.testing.assert_array_equal(found, litert(data, inputs)[0])

    @pytest.mark.parametrize("dtype", ["float32", "int8"])
    def test_a_run_skips_the_other_branch(self, dtype: str, tmp_path: Path) -> None:
        """Three dense layers or one, by the mean of the input; verified on samples of both branches."""
        data = decided(dtype)
        path = saved_tflite(data, tmp_path)
        with pytest.warns(ModelNotice, match="IF_2: both branches are compiled, and a run skips steps"):
            module = tvm_ext.load(path)
        package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions())
        result = package.report["verify"]["host"]
        assert result["passed"] and result["reference"] in ("TensorFlow Lite Micro", "LiteRT"), result
        assert not any("takes the branch" in text for text in result["warnings"])
        assert package.report["macs"] == 3 * 256 and package.report["macs_best_case"] == 256
        assert {step["guards"][0]["holds"] for step in package.report["steps"] if "guards" in step} == {True, False}
        assert "} else {" in (tmp_path / "out" / "model.c").read_text()
        taken: set[bool] = set()
        for shift in (-1.0, 1.0):
            real = np.random.default_rng(3).normal(shift, 0.5, (1, 16))
            x = real.astype(np.float32) if dtype == "float32" else np.clip(real * 32, -128, 127).astype(np.int8)
            (found,) = package.run({"x": x}).values()
            for expected in (tflite_micro(data, [x]), litert(data, [x])[0]):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0 if dtype == "int8" else 1e-6)
            taken.add(bool(x.mean() > 0))
        assert taken == {True, False}

    def test_they_stand_in_one_another(self, tmp_path: Path) -> None:
        """A branch that decides again, by a condition of its own."""
        net, outer = TfliteWriter(), TfliteWriter()
        x = outer.input("x", SHAPE)
        outer.results = [decides(outer, x, -0.5, then=2, otherwise=3)]
        x = net.input("x", SHAPE)
        data = net.finish([decides(net, x, 0.5, then=2, otherwise=1)], others=[outer, branch("NEG"), branch("ABS")])
        for mean in (-1.0, 0.0, 1.0):
            x = np.random.default_rng(1).normal(mean, 0.1, SHAPE).astype(np.float32)
            (found,), _ = referenced(saved_tflite(data, tmp_path), [x])
            np.testing.assert_array_equal(found, tflite_micro(data, [x]))
            np.testing.assert_array_equal(found, litert(data, [x])[0])

    @pytest.mark.parametrize(
        ("case", "reason"),
        [
            ("shape", r"IF_0\): control flow whose condition depends on data, which would give \[1, 6\] or \[1, 3\]"),
            ("type", r"IF_0\): .* whose result 'y' is float32, but 'IF_0.else.y' of a branch is int32"),
            ("scale", r"result 'y' is int8 \(scale 0.5, zero point 0\), but 'IF_0.else.y' of a branch is int8 \(sc"),
            ("condition", r"IF_0\): control flow whose condition is not a single bool"),
            ("place", r"GATHER.*IF_0.else.GATHER_0\): its indices depend on data, and may be out of range"),
            ("variable", r"IF_0.else.VAR_HANDLE_0 uses a variable in a branch that a run may skip"),
            ("state", r"SVDF.*IF_0.else.SVDF_0\): it keeps state between runs, but is in a branch that a run may skip"),
            ("operator", r"IF_0.else.Unknown_0\): a custom operator; its meaning is not in the file"),
        ],
    )
    def test_branches_that_are_refused(self, case: str, reason: str, tmp_path: Path) -> None:
        with pytest.raises(UnsupportedModel, match=reason):
            tvm_ext.load(saved_tflite(refused(case), tmp_path))


def decides(net: TfliteWriter, x: int, threshold: float, *, then: int, otherwise: int) -> int:
    """IF by the comparison of the mean with a threshold."""
    mean = net.operator("MEAN", [x, net.constant("axes", np.array([0, 1], np.int32))], net.tensor("mean", ()),
                        "ReducerOptions", KeepDims=False)  # fmt: skip
    over = net.operator("GREATER", [mean, net.constant("threshold", np.array(threshold, np.float32))],
                        net.tensor("over", (), "bool"), "GreaterOptions")  # fmt: skip
    return net.operator("IF", [over, x], net.tensor("chosen", SHAPE), "IfOptions", ThenSubgraphIndex=then,
                        ElseSubgraphIndex=otherwise)  # fmt: skip


def decided(dtype: str) -> bytes:
    """Three dense layers or one, by the mean of the input."""
    kind, shape = Quantized(scale=1 / 32) if dtype == "int8" else None, (1, 16)
    weight_kind = Quantized(scale=1 / 256) if dtype == "int8" else None
    rng = np.random.default_rng(2)

    def dense(count: int) -> TfliteWriter:
        net = TfliteWriter()
        last = net.input("x", shape, dtype, kind)
        for index in range(count):
            weights = rng.normal(0, 0.2, (16, 16))
            array = np.round(weights * 256).astype(np.int8) if dtype == "int8" else weights.astype(np.float32)
            given = [last, net.constant(f"w{index}", array, weight_kind)]
            if dtype == "int8":
                bias = rng.integers(-500, 500, 16).astype(np.int32)
                given.append(net.constant(f"b{index}", bias, Quantized(scale=1 / 32 / 256)))
            last = net.operator("FULLY_CONNECTED", given, net.tensor(f"d{index}", shape, dtype, kind),
                                "FullyConnectedOptions", FusedActivationFunction=NONE)  # fmt: skip
        net.results = [last]
        return net

    net = TfliteWriter()
    x = net.input("x", shape, dtype, kind)
    axes = net.constant("axes", np.array([0, 1], np.int32))
    mean = net.operator("MEAN", [x, axes], net.tensor("mean", (), dtype, kind), "ReducerOptions", KeepDims=False)
    zero = net.constant("zero", np.array(0, dtype), kind)
    over = net.operator("GREATER", [mean, zero], net.tensor("over", (), "bool"), "GreaterOptions")
    chosen = net.operator("IF", [over, x], net.tensor("chosen", shape, dtype, kind), "IfOptions",
                          ThenSubgraphIndex=1, ElseSubgraphIndex=2)  # fmt: skip
    y = net.operator("RELU", [chosen], net.tensor("y", shape, dtype, kind))
    return net.finish([y], others=[dense(3), dense(1)])


def refused(case: str) -> bytes:
    """IF by an input, whose branch for False does not fit."""
    kind = Quantized(scale=0.5) if case == "scale" else None
    dtype = "int8" if case == "scale" else "float32"
    net, then, other = TfliteWriter(), TfliteWriter(), TfliteWriter()
    x = net.input("x", SHAPE, dtype, kind)
    i = net.input("i", (6,), "int32")
    c = net.input("c", (2,) if case == "condition" else (1,), "bool")
    y = net.operator("IF", [c, x, i], net.tensor("y", SHAPE, dtype, kind), "IfOptions",
                     ThenSubgraphIndex=1, ElseSubgraphIndex=2)  # fmt: skip
    for side in (then, other):
        side.input("x", SHAPE, dtype, kind)
        side.input("i", (6,), "int32")
    then.results = [then.inputs[0]]
    x, i = other.inputs
    match case:
        case "shape":
            begin, size = (other.constant(n, np.array(v, np.int32)) for n, v in (("b", [0, 0]), ("s", [1, 3])))
            other.results = [other.operator("SLICE", [x, begin, size], other.tensor("y", (1, 3)), "SliceOptions")]
        case "type":
            shape = other.constant("shape", np.array(SHAPE, np.int32))
            other.results = [other.operator("RESHAPE", [i, shape], other.tensor("y", SHAPE, "int32"))]
        case "scale":
            changed = other.tensor("y", SHAPE, dtype, Quantized(scale=0.25))
            other.results = [other.operator("QUANTIZE", [x], changed, "QuantizeOptions")]
        case "place":
            other.results = [other.operator("GATHER", [x, i], other.tensor("y", SHAPE), "GatherOptions", Axis=1)]
        case "variable":
            handle = other.operator("VAR_HANDLE", [], other.tensor("v", (), "resource"), "VarHandleOptions")
            other.results = [other.operator("READ_VARIABLE", [handle], other.tensor("y", SHAPE), "ReadVariableOptions")]
        case "state":
            rng = np.random.default_rng(0)
            weights = [
                other.constant(n, rng.normal(size=s).astype(np.float32)) for n, s in (("f", (6, 6)), ("t", (6, 3)))
            ]
            state = other.tensor("kept", (1, 18), is_variable=True)
            other.results = [other.operator("SVDF", [x, *weights, -1, state], other.tensor("y", SHAPE), "SVDFOptions",
                                            Rank=1, FusedActivationFunction=NONE)]  # fmt: skip
        case "operator":
            other.results = [other.operator("Unknown", [x], other.tensor("y", SHAPE))]
        case _:
            other.results = [x]
    return net.finish([y], others=[then, other])


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
