"""Scan and Loop of ONNX run one step in a loop: the results are onnxruntime's, and the code is that of any length."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.models.onnx_models import saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.packages.package import Package

NODE, FLOAT, INT64, BOOL = helper.make_node, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CHANNELS, STATES = 6, 4


def value(name: str, *shape: int, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(0, 1, shape) / shape[0]).astype(np.float32)


def model(
    node: onnx.NodeProto,
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    constants: dict[str, np.ndarray],
    ahead: list[onnx.NodeProto] | None = None,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([*(ahead or []), node], "graph", inputs, outputs, tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def selective_scan(steps: int) -> onnx.ModelProto:
    """A selective state space (Mamba): the input decides the step, and what the state takes and gives.

    h = exp(dt A) h + dt x B(x);  y = C(x) h + D x
    """
    constants = {
        "A": -np.exp(weights(CHANNELS, STATES)), "to_dt": weights(CHANNELS, CHANNELS, seed=1),
        "to_b": weights(CHANNELS, STATES, seed=2), "to_c": weights(CHANNELS, STATES, seed=3),
        "D": weights(CHANNELS, seed=4), "first": np.array([0]), "last": np.array([1]),
        "h0": np.zeros((CHANNELS, STATES), np.float32),
    }  # fmt: skip
    nodes = [
        NODE("Unsqueeze", ["x_t", "first"], ["row"]),
        NODE("MatMul", ["row", "to_dt"], ["dt_row"]),
        NODE("Softplus", ["dt_row"], ["dt_open"]),
        NODE("Transpose", ["dt_open"], ["dt"]),
        NODE("MatMul", ["row", "to_b"], ["b"]),
        NODE("MatMul", ["row", "to_c"], ["c"]),
        NODE("Mul", ["dt", "A"], ["rate"]),
        NODE("Exp", ["rate"], ["decay"]),
        NODE("Mul", ["decay", "h"], ["kept"]),
        NODE("Unsqueeze", ["x_t", "last"], ["column"]),
        NODE("Mul", ["dt", "column"], ["scaled"]),
        NODE("Mul", ["scaled", "b"], ["added"]),
        NODE("Add", ["kept", "added"], ["h_next"]),
        NODE("Mul", ["h_next", "c"], ["terms"]),
        NODE("ReduceSum", ["terms", "last"], ["read"], keepdims=0),
        NODE("Mul", ["x_t", "D"], ["skipped"]),
        NODE("Add", ["read", "skipped"], ["y_t"]),
    ]
    body = helper.make_graph(
        nodes, "step", [value("h", CHANNELS, STATES), value("x_t", CHANNELS)],
        [value("h_next", CHANNELS, STATES), value("y_t", CHANNELS)],
    )  # fmt: skip
    node = NODE("Scan", ["h0", "x"], ["h_last", "y"], "scan", body=body, num_scan_inputs=1)
    outputs = [value("y", steps, CHANNELS), value("h_last", CHANNELS, STATES)]
    return model(node, [value("x", steps, CHANNELS)], outputs, constants)


def linear_state_space(steps: int) -> onnx.ModelProto:
    """A diagonal state space (S4): h = a h + B x, y = C h, as a Scan over axis 1, with both ends as outputs."""
    constants = {
        "a": np.linspace(0.5, 0.99, STATES, dtype=np.float32), "B": weights(CHANNELS, STATES),
        "C": weights(STATES, CHANNELS, seed=1),
    }  # fmt: skip
    nodes = [
        NODE("Mul", ["a", "h"], ["kept"]),
        NODE("MatMul", ["x_t", "B"], ["taken"]),
        NODE("Add", ["kept", "taken"], ["h_next"]),
        NODE("MatMul", ["h_next", "C"], ["y_t"]),
        NODE("Tanh", ["y_t"], ["bent"]),
    ]
    body = helper.make_graph(
        nodes, "step", [value("h", 1, STATES), value("x_t", 1, CHANNELS)],
        [value("h_next", 1, STATES), value("bent", 1, CHANNELS)],
    )  # fmt: skip
    node = NODE("Scan", ["h0", "x"], ["h_last", "y"], "scan", body=body, num_scan_inputs=1,
                scan_input_axes=[1], scan_output_axes=[1])  # fmt: skip
    inputs = [value("h0", 1, STATES), value("x", 1, steps, CHANNELS)]
    return model(node, inputs, [value("y", 1, steps, CHANNELS), value("h_last", 1, STATES)], constants)


def recurrent_unit(steps: int) -> onnx.ModelProto:
    """A simple recurrent unit (SRU, QRNN) as a Loop: the gates of all steps come from a product ahead of it."""
    constants = {
        "W": weights(CHANNELS, 3 * CHANNELS), "most": np.array(steps), "one": np.array(1, np.float32),
        "go": np.array(True), "c0": np.zeros((1, CHANNELS), np.float32),
        "thirds": np.array([CHANNELS] * 3),
    }  # fmt: skip
    ahead = [NODE("MatMul", ["x", "W"], ["all"]), NODE("Sigmoid", ["all"], ["gates"])]
    nodes = [
        NODE("Identity", ["go_in"], ["go_out"]),
        NODE("Gather", ["gates", "i"], ["row"], axis=0),
        NODE("Split", ["row", "thirds"], ["new", "forget", "out"], axis=1),
        NODE("Mul", ["forget", "c"], ["kept"]),
        NODE("Sub", ["one", "forget"], ["rest"]),
        NODE("Mul", ["rest", "new"], ["added"]),
        NODE("Add", ["kept", "added"], ["c_next"]),
        NODE("Tanh", ["c_next"], ["bent"]),
        NODE("Mul", ["out", "bent"], ["h"]),
    ]
    body = helper.make_graph(
        nodes, "step", [value("i", dtype=INT64), value("go_in", dtype=BOOL), value("c", 1, CHANNELS)],
        [value("go_out", dtype=BOOL), value("c_next", 1, CHANNELS), value("h", 1, CHANNELS)],
    )  # fmt: skip
    node = NODE("Loop", ["most", "go", "c0"], ["c_last", "y"], "loop", body=body)
    outputs = [value("y", steps, 1, CHANNELS), value("c_last", 1, CHANNELS)]
    return model(node, [value("x", steps, 1, CHANNELS)], outputs, constants, ahead)


def both_ways(steps: int) -> onnx.ModelProto:
    """Two states and two scanned inputs, of which one is read from its end; outputs along other axes and reversed."""
    nodes = [
        NODE("Mul", ["s", "half"], ["slow"]),
        NODE("Add", ["slow", "a_t"], ["s_next"]),
        NODE("Max", ["m", "b_t"], ["m_next"]),
        NODE("Add", ["s_next", "offset"], ["p_t"]),
        NODE("Sub", ["m_next", "s_next"], ["q_t"]),
    ]
    body = helper.make_graph(
        nodes, "step", [value("s", 3), value("m", 3), value("a_t", 3), value("b_t", 3)],
        [value("s_next", 3), value("m_next", 3), value("p_t", 3), value("q_t", 3)],
    )  # fmt: skip
    node = NODE(
        "Scan", ["s0", "m0", "a", "b"], ["s_last", "m_last", "p", "q"], "scan", body=body, num_scan_inputs=2,
        scan_input_axes=[1, 0], scan_input_directions=[1, 0], scan_output_axes=[1, 0], scan_output_directions=[0, 1],
    )  # fmt: skip
    ahead = [NODE("Mul", ["b0", "half"], ["offset"])]
    inputs = [value("s0", 3), value("m0", 3), value("a", 3, steps), value("b", steps, 3), value("b0", 3)]
    outputs = [value("s_last", 3), value("m_last", 3), value("p", 3, steps), value("q", steps, 3)]
    return model(node, inputs, outputs, {"half": np.array(0.5, np.float32)}, ahead)


def loop_in_scan(steps: int) -> onnx.ModelProto:
    """Each element of a Scan goes through twelve steps of an iteration."""
    inner = helper.make_graph(
        [NODE("Identity", ["go_in"], ["go_out"]), NODE("Mul", ["v", "w"], ["scaled"]),
         NODE("Tanh", ["scaled"], ["bent"]), NODE("Add", ["bent", "x_t"], ["v_next"])],
        "inner", [value("i", dtype=INT64), value("go_in", dtype=BOOL), value("v", 3)],
        [value("go_out", dtype=BOOL), value("v_next", 3)],
    )  # fmt: skip
    nodes = [NODE("Loop", ["twelve", "go", "s"], ["s_next"], "inner", body=inner), NODE("Neg", ["s_next"], ["y_t"])]
    body = helper.make_graph(nodes, "step", [value("s", 3), value("x_t", 3)], [value("s_next", 3), value("y_t", 3)])
    node = NODE("Scan", ["s0", "x"], ["s_last", "y"], "scan", body=body, num_scan_inputs=1)
    constants = {"twelve": np.array(12), "go": np.array(True), "w": weights(3), "s0": np.ones(3, np.float32)}
    return model(node, [value("x", steps, 3)], [value("y", steps, 3), value("s_last", 3)], constants)


def built(made: onnx.ModelProto, folder: Path) -> Package:
    folder.mkdir()
    return tvm_ext.build(tvm_ext.load(saved(made, folder), states={}), "host", folder / "out", BuildOptions())


def check_results(package: Package, made: onnx.ModelProto) -> None:
    """Compare with onnxruntime, beside the verification of the build."""
    result = package.report["verify"]["host"]
    assert result["passed"] and result["reference"] == "onnxruntime" and not result["warnings"], result
    rng = np.random.default_rng(7)
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in made.graph.input}
    arrays = {name: rng.normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    runtime = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = runtime.run(None, arrays)
    found = package.run(arrays)
    for output, array in zip(made.graph.output, expected, strict=True):
        np.testing.assert_allclose(found[output.name], array, rtol=1e-4, atol=1e-5)


def code_of(package: Package) -> str:
    """The layers, without the numbers that name the length of the sequence."""
    text = (package.folder / "model.c").read_text()
    return re.sub(r"\b(10|200|2000|1200)\b", "T", text.partition("#include")[2])


@pytest.mark.parametrize("network", some_of([selective_scan], sweep=[recurrent_unit, linear_state_space, loop_in_scan]))
def test_the_code_does_not_grow(network: Callable[[int], onnx.ModelProto], tmp_path: Path) -> None:
    packages = {}
    for steps in (10, 200):
        made = network(steps)
        packages[steps] = built(made, tmp_path / str(steps))
        check_results(packages[steps], made)
    assert code_of(packages[10]) == code_of(packages[200])
    steps_of = [len(package.report["steps"]) for package in packages.values()]
    assert steps_of[0] == steps_of[1] <= 4
    assert packages[200].report["macs"] == 20 * packages[10].report["macs"]


@pytest.mark.parametrize("network", some_of([both_ways, loop_in_scan], sweep=[linear_state_space]))
def test_axes_directions_and_loops_in_loops(network: Callable[[int], onnx.ModelProto], tmp_path: Path) -> None:
    made = network(12)
    package = built(made, tmp_path / "one")
    check_results(package, made)


def loops_of(module: tvm.IRModule) -> list[RepeatedStep]:
    return [step for _, func in module.functions_items() if (step := RepeatedStep.read(func)).count]


@pytest.mark.parametrize(("steps", "count"), [(8, 0), (9, 9)])
def test_short_loops_are_unrolled(steps: int, count: int, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(recurrent_unit(steps), tmp_path), states={})
    assert [loop.count for loop in loops_of(module)] == ([count] if count else [])


def growing() -> onnx.ModelProto:
    """An iteration appends to its state, so no step can be repeated."""
    nodes = [NODE("Identity", ["go_in"], ["go_out"]), NODE("Concat", ["v", "x"], ["longer"], axis=0)]
    body = helper.make_graph(
        nodes, "body", [value("i", dtype=INT64), value("go_in", dtype=BOOL), value("v", 3)],
        [value("go_out", dtype=BOOL), helper.make_tensor_value_info("longer", FLOAT, None)],
    )  # fmt: skip
    node = NODE("Loop", ["most", "go", "x"], ["y"], "loop", body=body)
    constants = {"most": np.array(40), "go": np.array(True)}
    return model(node, [value("x", 3)], [value("y", 123)], constants)


def test_a_state_that_grows_is_unrolled(tmp_path: Path) -> None:
    module = tvm_ext.load(saved(growing(), tmp_path), states={})
    assert not loops_of(module) and tuple(map(int, module["main"].ret_ty.shape.values)) == (123,)


def counted(limit: np.ndarray, cast: int | None, *, is_state: bool) -> onnx.ModelProto:
    """A loop as tf2onnx writes it: without a largest number of iterations, while a counter is less than a limit.

    cast: the type to which the counter is cast ahead of the comparison. is_state: whether the limit is a state that no
    iteration changes.
    """
    casts = [] if cast is None else [NODE("Cast", ["after"], ["cast"], to=cast)]
    states = [value("limit", dtype=INT64)] if is_state else []
    if is_state:
        casts.append(NODE("Cast", ["limit"], ["bound"], to=INT64 if cast is None else cast))
    nodes = [
        NODE("Add", ["count", "one"], ["after"]), *casts, NODE("Mul", ["s", "half"], ["faded"]),
        NODE("Add", ["faded", "w"], ["s_next"]),
        NODE("Less", ["cast" if cast is not None else "after", "bound"], ["again"]),
    ]  # fmt: skip
    body = helper.make_graph(
        nodes, "body",
        [value("i", dtype=INT64), value("go_in", dtype=BOOL), value("count", dtype=INT64), value("s", 1, 4), *states],
        [value("again", dtype=BOOL), value("after", dtype=INT64), value("s_next", 1, 4), *states,
         value("s_next", 1, 4)],
    )  # fmt: skip
    results = ["count_out", "y", *["limit_out"] * is_state, "all"]
    node = NODE("Loop", ["most", "go", "zero", "x", *["n"] * is_state], results, "loop", body=body)
    constants = {
        "most": np.array(2**63 - 1), "go": np.array(True), "zero": np.array(0), "one": np.array(1),
        "half": np.array(0.5, np.float32), "w": weights(1, 4), **({"n": limit} if is_state else {"bound": limit}),
    }  # fmt: skip
    return model(node, [value("x", 1, 4)], [value("y", 1, 4), value("all", 12, 1, 4)], constants)


@pytest.mark.parametrize(
    ("limit", "cast", "is_state"),
    [(np.array(12), None, True), (np.array(12), FLOAT, True), (np.array(12, np.float32), FLOAT, False)],
)
def test_a_counter_that_ends_a_loop(limit: np.ndarray, cast: int | None, is_state: bool, tmp_path: Path) -> None:
    made = counted(limit, cast, is_state=is_state)
    (loop,) = loops_of(tvm_ext.load(saved(made, tmp_path)))
    assert loop.count == 12 and not loop.is_open
    check_results(built(made, tmp_path / "package"), made)


def test_a_limit_that_is_no_whole_number_ends_no_loop(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="its scanned outputs have an element for each iteration that runs"):
        tvm_ext.load(saved(counted(np.array(11.5, np.float32), FLOAT, is_state=False), tmp_path))
