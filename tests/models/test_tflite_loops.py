"""WHILE of TensorFlow Lite files as a step in a loop: results and iterations are those of both runtimes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite

import tvm_ext
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_runners import litert, saved_tflite, tflite_micro
from tvm_ext import BuildOptions, Limits
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.shapes import ModelNotice

SHAPE, COUNT = (1, 6), (1,)
NONE = tflite.ActivationFunctionType.NONE


def below(net: TfliteWriter, value: int, limit: float, name: str, dtype: str = "float32") -> int:
    """The comparison of one number with a constant."""
    bound = net.constant(f"{name}_limit", np.array([limit], dtype))
    return net.operator("LESS", [value, bound], net.tensor(name, COUNT, "bool"), "LessOptions")


def halving(
    *, most: int | None, by_data: bool, quantized: bool = False, unbroken: bool = True, carried: bool = False
) -> bytes:
    """The smaller of x / 2 and w, and a counter, while it is below `most`, and the largest element above 1 / 2.

    by_data: whether the elements end the loop. unbroken: False for a body that makes another scale. carried:
    whether the body has an operator of TensorFlow.
    """
    kind = {"dtype": "int8", "quantized": Quantized(scale=1 / 64, zero_point=3)} if quantized else {}
    condition, body, net = TfliteWriter(), TfliteWriter(), TfliteWriter()
    i, x = condition.input("i", COUNT, "int32"), condition.input("x", SHAPE, **kind)
    condition.input("w", SHAPE, **kind)
    tests = [] if most is None else [below(condition, i, most, "counts", "int32")]
    if by_data:
        axis = condition.constant("axis", np.array([1], np.int32))
        largest = condition.operator("REDUCE_MAX", [x, axis], condition.tensor("largest", COUNT, **kind),
                                     "ReducerOptions", KeepDims=False)  # fmt: skip
        if quantized:
            largest = condition.operator("DEQUANTIZE", [largest], condition.tensor("real", COUNT), "DequantizeOptions")
        half = condition.constant("half", np.array([0.5], np.float32))
        tests.append(
            condition.operator("GREATER", [largest, half], condition.tensor("large", COUNT, "bool"), "GreaterOptions")
        )
    both = (
        tests[0]
        if len(tests) == 1
        else condition.operator("LOGICAL_AND", tests, condition.tensor("both", COUNT, "bool"), "LogicalAndOptions")
    )
    condition.results = [both]
    i, x, w = body.input("i", COUNT, "int32"), body.input("x", SHAPE, **kind), body.input("w", SHAPE, **kind)
    one = body.constant("one", np.array([1], np.int32))
    counted = body.operator("ADD", [i, one], body.tensor("counted", COUNT, "int32"), "AddOptions",
                            FusedActivationFunction=NONE)  # fmt: skip
    if quantized:
        half = body.constant("half", np.array([32], np.int8), Quantized(scale=1 / 64))
    else:
        half = body.constant("half", np.full(1, 0.5, np.float32))
    product = body.operator("MUL", [x, half], body.tensor("product", SHAPE, **kind), "MulOptions",
                            FusedActivationFunction=NONE)  # fmt: skip
    after = kind if unbroken else {"dtype": "int8", "quantized": Quantized(scale=1 / 32, zero_point=3)}
    if carried:
        product = body.operator("FlexErf", [product], body.tensor("erf", SHAPE, **kind))
    total = body.operator("MINIMUM", [product, w], body.tensor("total", SHAPE, **after), "MaximumMinimumOptions")
    body.results = [counted, total, w]
    x, i = net.input("x", SHAPE, **kind), net.constant("i", np.array([0], np.int32))
    w = net.input("w", SHAPE, **kind)
    results = [net.tensor("count", COUNT, "int32"), net.tensor("y", SHAPE, **kind), net.tensor("same", SHAPE, **kind)]
    net.operator("WHILE", [i, x, w], results, "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    return net.finish([results[1], results[0]], others=[condition, body])


def check_runs(data: bytes, folder: Path, *, dtype: str = "float32", limits: Limits | None = None) -> set[int]:
    """Build, verify and compare runs of several lengths. Returns their numbers of iterations."""
    module = tvm_ext.load(saved_tflite(data, folder), limits=limits, states={})
    package = tvm_ext.build(module, "host", folder / "out", BuildOptions())
    result = package.report["verify"]["host"]
    assert result["passed"] and result["reference"] in ("TensorFlow Lite Micro", "LiteRT"), result
    found: set[int] = set()
    for scale in (0.1, 0.6, 1.0, 1.9):
        real = np.linspace(-0.5, 1, 6)[None] * scale
        weight = np.full(SHAPE, 0.7)
        arrays = [
            one.astype(np.float32) if dtype == "float32" else np.clip(np.round(one * 64) + 3, -128, 127).astype(np.int8)
            for one in (real, weight)
        ]
        values = package.run(dict(zip(("x", "w"), arrays, strict=True)))
        expected, count = litert(data, arrays)
        np.testing.assert_array_equal(values["count"], count)
        for y in (expected, tflite_micro(data, arrays)):
            np.testing.assert_allclose(values["y"], y, rtol=1e-6, atol=1e-6 if dtype == "float32" else 0)
        found.add(int(count[0]))
    return found


def test_a_long_loop_that_is_counted(tmp_path: Path) -> None:
    """Its number of iterations is known, so nothing ends it earlier, and each run has all of them."""
    data = halving(most=30, by_data=False)
    module = tvm_ext.load(saved_tflite(data, tmp_path), states={})
    (loop,) = [step for _, func in module.functions_items() if (step := RepeatedStep.read(func)).count]
    assert loop.count == 30 and not loop.is_open
    assert check_runs(data, tmp_path) == {30}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_data_end_a_loop_up_to_its_counter(dtype: str, tmp_path: Path) -> None:
    """After none, some, and as many iterations as the counter may count."""
    data = halving(most=2, by_data=True, quantized=dtype == "int8")
    with pytest.warns(ModelNotice, match="WHILE_0: data end the loop, after at most 2 iterations"):
        counts = check_runs(data, tmp_path, dtype=dtype)
    assert counts > {0, 2}


def test_a_bound_that_the_user_gives(tmp_path: Path) -> None:
    data = halving(most=None, by_data=True)
    with pytest.raises(UnsupportedModel, match=r"no counter that it compares .*; give one with --limit iterations="):
        tvm_ext.load(saved_tflite(data, tmp_path))
    with pytest.warns(ModelNotice, match="after at most 20 iterations"):
        assert check_runs(data, tmp_path, limits=Limits(iterations=20)) > {0, 1}


def test_a_value_that_changes_its_scale(tmp_path: Path) -> None:
    data = halving(most=3, by_data=True, quantized=True, unbroken=False)
    reason = r"an iteration changes 'WHILE_0.x' from int8 \(scale 0.015625, .* to int8 \(scale 0.03"
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved_tflite(data, tmp_path))


def test_an_operator_of_tensorflow_in_a_long_loop(tmp_path: Path) -> None:
    """It is named once, and the loop is not unrolled up to the limit of operators."""
    data = halving(most=5000, by_data=False, carried=True)
    with pytest.raises(UnsupportedModel, match=r"FlexErf, once .*a TensorFlow operator carried along"):
        tvm_ext.load(saved_tflite(data, tmp_path))


LENGTH, CHANNELS = 12, 3
OPEN: dict[str, tuple[int, ...]] = {"signature": (-1, -1, -1)}
"""The signature of a tensor whose shape in the file is a placeholder."""


def listing(
    *, first: int = 0, by_data: bool = False, is_read: bool = False, is_stated: bool = False, grows: bool = False
) -> bytes:
    """A recurrent layer as Keras writes it: the state after each step becomes an element of a list.

    first: element that the first iteration writes. by_data: whether the largest state may end the loop. is_read:
    whether the body reads the list. is_stated: whether the file has the shape of the list ahead of the loop. grows:
    whether an iteration doubles the state.
    """
    state, placeholder = (1, CHANNELS), (1, 1, 1)
    of_list = ((LENGTH, 1, CHANNELS), {}) if is_stated else (placeholder, OPEN)
    ports: list[tuple[str, tuple[int, ...], dict[str, object]]] = [
        ("i", (), {"dtype": "int32"}), ("n", (), {"dtype": "int32"}), ("list", *of_list),
        ("s", state, {}), ("x", (LENGTH, *state), {}),
    ]  # fmt: skip
    condition, body, net = TfliteWriter(), TfliteWriter(), TfliteWriter()
    i, n, _, s, _ = (condition.input(name, shape, **kind) for name, shape, kind in ports)
    test = condition.operator("LESS", [i, n], condition.tensor("less", (), "bool"), "LessOptions")
    if by_data:
        axis = condition.constant("axis", np.array([1], np.int32))
        most = condition.operator("REDUCE_MAX", [s, axis], condition.tensor("most", COUNT), "ReducerOptions",
                                  KeepDims=False)  # fmt: skip
        limit = condition.constant("limit", np.array([1e3], np.float32))
        small = condition.operator("LESS", [most, limit], condition.tensor("small", COUNT, "bool"), "LessOptions")
        test = condition.operator("LOGICAL_AND", [test, small], condition.tensor("both", COUNT, "bool"),
                                  "LogicalAndOptions")  # fmt: skip
    condition.results = [test]

    i, n, kept, s, x = (body.input(name, shape, **kind) for name, shape, kind in ports)
    one, zero = body.constant("one", np.array(1, np.int32)), body.constant("zero", np.array(0, np.int32))
    lone = body.constant("lone", np.array([1], np.int32))
    after = body.operator("ADD", [i, one], body.tensor("after", (), "int32"), "AddOptions")
    element = body.operator("GATHER", [x, i], body.tensor("element", state), "GatherOptions")
    half = body.constant("half", np.array(0.5, np.float32))
    faded = body.operator("MUL", [s, half], body.tensor("faded", state), "MulOptions")
    if is_read:
        begin, size = (body.constant(name, np.array(numbers, np.int32)) for name, numbers in
                       (("begin", [0, 0, 0]), ("size", [1, 1, CHANNELS])))  # fmt: skip
        read = body.operator("SLICE", [kept, begin, size], body.tensor("read", (1, *state)), "SliceOptions")
        faded = body.operator("ADD", [faded, read], body.tensor("sum", (1, *state)), "AddOptions")
        shape = body.constant("shape", np.array(state, np.int32))
        faded = body.operator("RESHAPE", [faded, shape], body.tensor("flat", state), "ReshapeOptions")
    s = body.operator("ADD", [faded, element], body.tensor("s_after", state), "AddOptions")

    def numbers(scalar: int, others: int, name: str) -> int:
        rest = body.constant(f"{name}_rest", np.array([others] * 2, np.int32))
        vector = body.operator("RESHAPE", [scalar, lone], body.tensor(f"{name}_lone", (1,), "int32"), "ReshapeOptions")
        return body.operator("CONCATENATION", [vector, rest], body.tensor(name, (3,), "int32"),
                             "ConcatenationOptions")  # fmt: skip

    zeros, all_of = (body.constant(name, np.array([number] * 3, np.int32)) for name, number in (("z", 0), ("a", -1)))
    ahead = body.operator("SLICE", [kept, zeros, numbers(i, -1, "ends")], body.tensor("ahead", placeholder, **OPEN),
                          "SliceOptions")  # fmt: skip
    behind = body.operator("SLICE", [kept, numbers(after, 0, "begins"), all_of],
                           body.tensor("behind", placeholder, **OPEN), "SliceOptions")  # fmt: skip
    expanded = body.operator("EXPAND_DIMS", [s, zero], body.tensor("expanded", (1, *state)), "ExpandDimsOptions")
    kept = body.operator("CONCATENATION", [ahead, expanded, behind], body.tensor("joined", placeholder, **OPEN),
                         "ConcatenationOptions")  # fmt: skip
    if grows:
        s = body.operator("CONCATENATION", [s, s], body.tensor("doubled", state, signature=(-1, CHANNELS)),
                          "ConcatenationOptions", Axis=0)  # fmt: skip
    body.results = [after, n, kept, s, x]

    x, shape = net.input("x", (LENGTH, *state)), net.constant("dims", np.array([LENGTH, *state], np.int32))
    extents = net.operator(
        "SHAPE", [x], net.tensor("extents", (3,), "int32"), "ShapeOptions", OutType=tflite.TensorType.INT32
    )
    begin, end = (net.constant(name, np.array([number], np.int32)) for name, number in (("b", 0), ("e", 1)))
    n = net.operator("STRIDED_SLICE", [extents, begin, end, end], net.tensor("n", (), "int32"),
                     "StridedSliceOptions", ShrinkAxisMask=1)  # fmt: skip
    nothing = net.constant("nothing", np.array(0, np.float32))
    kept = net.operator("FILL", [shape, nothing], net.tensor("kept", placeholder, **OPEN), "FillOptions")
    i, zero = net.constant("i", np.array(first, np.int32)), net.constant("zero", np.zeros(state, np.float32))
    s = net.input("h", state) if by_data else zero
    results = [net.tensor(f"{name}_out", shape, **kind) for name, shape, kind in ports]
    net.operator("WHILE", [i, n, kept, s, x], results, "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    extents = net.operator(
        "SHAPE", [results[2]], net.tensor("again", (3,), "int32"), "ShapeOptions", OutType=tflite.TensorType.INT32
    )
    y = net.operator("RESHAPE", [results[2], extents], net.tensor("y", placeholder, **OPEN), "ReshapeOptions")
    return net.finish([y], others=[condition, body])


@pytest.mark.parametrize("is_stated", [False, True])
def test_a_list_that_a_loop_writes_is_stacked(is_stated: bool, tmp_path: Path) -> None:
    """Shapes that the file leaves open follow from its inputs, also of a list that is closed ahead of the loop."""
    data = listing(is_stated=is_stated)
    module = tvm_ext.load(saved_tflite(data, tmp_path), states={})
    (loop,) = [step for _, func in module.functions_items() if (step := RepeatedStep.read(func)).count]
    assert loop.count == LENGTH and not loop.is_open
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions())
    result = package.report["verify"]["host"]
    assert result["passed"] and result["reference"] == "LiteRT"
    x = np.random.default_rng(0).normal(size=(LENGTH, 1, CHANNELS)).astype(np.float32)
    np.testing.assert_allclose(package.run({"x": x})["y"], litert(data, [x])[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"first": 2}, "it writes 'kept', a list of 12 elements, not from the first to the last"),
        ({"by_data": True}, "the list that it writes has an element for each iteration that runs"),
        ({"is_read": True}, "its body cannot be compiled"),
        ({"grows": True}, r"an iteration changes 'WHILE_3.zero' from \[1, 3\] to \[2, 3\]"),
    ],
)
def test_lists_that_are_not_stacked(changed: dict[str, object], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved_tflite(listing(**changed), tmp_path))


def listing_of_tensorflow(
    *,
    steps: int = LENGTH,
    count: int | None = None,
    only_last: bool = False,
    at: int = 0,
    is_read: bool = False,
    is_returned: bool = False,
) -> bytes:
    """The recurrent layer of `listing` with select TF operators: its list is a tensor of type VARIANT.

    count: elements of the list; None for one for each step, or 1 if only the last is wanted. only_last: whether each
    iteration writes element `at`. is_read: whether the body reads the list. is_returned: whether the list is an output.
    """
    state = (1, CHANNELS)
    ports: list[tuple[str, tuple[int, ...], dict[str, object]]] = [
        ("i", (), {"dtype": "int32"}), ("list", (), {"dtype": "variant"}), ("s", state, {}), ("x", (steps, *state), {}),
    ]  # fmt: skip
    condition, body, net = TfliteWriter(), TfliteWriter(), TfliteWriter()
    i, *_ = (condition.input(name, shape, **kind) for name, shape, kind in ports)
    limit = condition.constant("limit", np.array(steps, np.int32))
    condition.results = [condition.operator("LESS", [i, limit], condition.tensor("less", (), "bool"), "LessOptions")]

    i, kept, s, x = (body.input(name, shape, **kind) for name, shape, kind in ports)
    one, half = body.constant("one", np.array(1, np.int32)), body.constant("half", np.array(0.5, np.float32))
    after = body.operator("ADD", [i, one], body.tensor("after", (), "int32"), "AddOptions")
    element = body.operator("GATHER", [x, i], body.tensor("element", state), "GatherOptions")
    faded = body.operator("MUL", [s, half], body.tensor("faded", state), "MulOptions")
    s = body.operator("ADD", [faded, element], body.tensor("s_after", state), "AddOptions")
    where = body.constant("at", np.array(at, np.int32)) if only_last else i
    if is_read:
        extents = body.constant("extents", np.array([-1, CHANNELS], np.int32))
        body.operator("FlexTensorListStack", [kept, extents], body.tensor("read", (steps, *state)))
    kept = body.operator("FlexTensorListSetItem", [kept, where, s], body.tensor("set", (), "variant"))
    body.results = [after, kept, s, x]

    x = net.input("x", (steps, *state))
    extents = net.constant("extents", np.array([-1, CHANNELS], np.int32))
    length = count or (1 if only_last else steps)
    number = net.constant("number", np.array(length, np.int32))
    kept = net.operator("FlexTensorListReserve", [extents, number], net.tensor("kept", (), "variant"))
    i, s = net.constant("i", np.array(0, np.int32)), net.constant("zero", np.zeros(state, np.float32))
    results = [net.tensor(f"{name}_out", shape, **kind) for name, shape, kind in ports]
    net.operator("WHILE", [i, kept, s, x], results, "WhileOptions", CondSubgraphIndex=1, BodySubgraphIndex=2)
    y = net.operator("FlexTensorListStack", [results[1], extents], net.tensor("y", (length, *state)))
    return net.finish([results[1] if is_returned else y], others=[condition, body])


@pytest.mark.parametrize("steps", [3, LENGTH])
@pytest.mark.parametrize("only_last", [False, True])
def test_lists_of_tensorflow(only_last: bool, steps: int, tmp_path: Path) -> None:
    """Results are those of LiteRT for the layer with built-in operators: no runtime here runs Flex operators."""
    data = listing_of_tensorflow(steps=steps, only_last=only_last)
    module = tvm_ext.load(saved_tflite(data, tmp_path), states={})
    loops = [step for _, func in module.functions_items() if (step := RepeatedStep.read(func)).count]
    assert [loop.count for loop in loops] == ([LENGTH] if steps == LENGTH else [])
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["passed"]
    x = np.random.default_rng(0).normal(size=(LENGTH, 1, CHANNELS)).astype(np.float32)
    expected = litert(listing(), [x])[0][:steps]
    found = package.run({"x": x[:steps]})["y"]
    np.testing.assert_allclose(found, expected[-1:] if only_last else expected, rtol=1e-6, atol=1e-6)


def test_elements_that_are_not_set_are_zeros(tmp_path: Path) -> None:
    data = listing_of_tensorflow(count=4, only_last=True, at=2)
    package = tvm_ext.build(tvm_ext.load(saved_tflite(data, tmp_path), states={}), "host", tmp_path / "out")
    x = np.random.default_rng(0).normal(size=(LENGTH, 1, CHANNELS)).astype(np.float32)
    found = package.run({"x": x})["y"]
    np.testing.assert_allclose(found[2], litert(listing(), [x])[0][-1], rtol=1e-6, atol=1e-6)
    assert found.shape == (4, 1, CHANNELS) and not found[[0, 1, 3]].any()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"count": 20}, "it writes 'kept', a list of 20 elements, not from the first to the last"),
        ({"count": 2, "steps": 3}, "it writes element 2 of a list of 2 elements"),
        ({"only_last": True, "at": 1}, "it writes element 1 of a list of 1 elements"),
        ({"is_read": True}, "its body does more with the list 'kept' than write one element an iteration"),
        ({"is_returned": True}, "graph output, once .list_out.: its element type VARIANT is not supported"),
    ],
)
def test_lists_of_tensorflow_that_are_refused(changed: dict[str, object], reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved_tflite(listing_of_tensorflow(**changed), tmp_path))


def list_on_its_own(operator: str, *, count: int = 3, index: int = 0, is_open: bool = False) -> bytes:
    """A list without a loop. operator: what reads it. is_open: whether an input is the number of elements."""
    net, element = TfliteWriter(), (1, CHANNELS)
    x, extents = net.input("x", element), net.constant("extents", np.array([-1, CHANNELS], np.int32))
    number = net.input("n", (), "int32") if is_open else net.constant("n", np.array(count, np.int32))
    at = net.constant("at", np.array(index, np.int32))
    kept = net.operator("FlexTensorListReserve", [extents, number], net.tensor("kept", (), "variant"))
    if operator != "FlexTensorListStack":
        y = net.operator(operator, [kept, at, extents], net.tensor("y", element))
        return net.finish([y])
    if index >= 0:
        kept = net.operator("FlexTensorListSetItem", [kept, at, x], net.tensor("set", (), "variant"))
    return net.finish([net.operator(operator, [kept, extents], net.tensor("y", (count, *element)))])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            list_on_its_own("FlexTensorListGetItem"),
            r"TensorListGetItem.*built-in operators only, or the layers with unr",
        ),
        (list_on_its_own("FlexTensorListStack", index=-1), "it stacks a list without elements"),
        (list_on_its_own("FlexTensorListStack", is_open=True), "the number of elements of its list is not known"),
    ],
)
def test_lists_without_a_loop_that_are_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved_tflite(data, tmp_path))
