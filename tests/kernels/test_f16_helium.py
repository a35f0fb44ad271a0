"""Helium's kernels of float16 in plain C: close to the reference, and the same bits whichever way rows are cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, Kept, Kernel, StoredRows
from codegen_c.operators.kinds import (
    HalfCast,
    HalfConv2d,
    HalfDense,
    HalfElementwise,
    HalfPool2d,
    HalfSoftmax,
    Operator,
    TensorType,
    Window,
)
from codegen_c.operators.scalar import IDENTITY, Operand, ScalarProgram
from codegen_c.targets.helium.kernels import conv2d_f16, pool2d_f16
from codegen_c.targets.helium.kernels import half_floats as half_floats_helium
from tests.kernels.float32 import floats, number, program, value
from tests.kernels.harness import run_accumulating, run_every_way, run_kernel
from tests.kernels.helium import M55, implementation
from tests.support.sweeps import some_of

RELU = program(("maximum", value(), number(0.0)))
RESIDUAL = program(
    ("half", value()),
    ("add", value(1), Operand(kind="input", index=1)),
    ("half", value(2)),
    ("minimum", value(3), number(1.5)),
)
SIGMOID = program(("sigmoid", value()))


def halves(*shape: int) -> TensorType:
    return TensorType(shape=shape, dtype="float16")


def elements(tensor: TensorType, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=tensor.shape).astype(tensor.dtype)


def weights(*shape: int) -> np.ndarray:
    return (elements(halves(*shape), len(shape)) / 4).astype(np.float32)


def convolution(
    size: tuple[int, int, int], channels: int, window: Window, groups: int = 1, finish: ScalarProgram = IDENTITY
) -> HalfConv2d:
    """size: rows, columns and channels of the input."""
    top, left, bottom, right = window.padding
    reach = [(taps - 1) * step + 1 for taps, step in zip(window.kernel, window.dilation, strict=True)]
    rows = (size[0] + top + bottom - reach[0]) // window.strides[0] + 1
    columns = (size[1] + left + right - reach[1]) // window.strides[1] + 1
    output = halves(1, rows, columns, channels)
    return HalfConv2d(
        inputs=(halves(1, *size), *([output] if finish.inputs_read() else [])),
        outputs=(output,),
        weight=weights(channels, *window.kernel, size[2] // groups),
        bias=np.linspace(-1, 1, channels, dtype=np.float32),
        window=window,
        groups=groups,
        finish=finish,
    )


def dense(rows: int, channels: int, depth: int, finish: ScalarProgram = IDENTITY) -> HalfDense:
    return HalfDense(
        inputs=(halves(rows, depth),), outputs=(halves(rows, channels),), weight=weights(channels, depth),
        bias=np.linspace(-1, 1, channels, dtype=np.float32), finish=finish,
    )  # fmt: skip


def pool(method: str, size: tuple[int, int, int], window: Window, *, include: bool = False) -> HalfPool2d:
    shape = convolution(size, size[2], window, groups=size[2]).output.shape
    return HalfPool2d(
        inputs=(halves(1, *size),), outputs=(halves(*shape),), method=method, window=window, count_include_pad=include,
    )  # fmt: skip


def elementwise(finish: ScalarProgram, *shapes: tuple[int, ...]) -> HalfElementwise:
    return HalfElementwise(inputs=tuple(halves(*s) for s in shapes), outputs=(halves(*shapes[0]),), finish=finish)


X, Y = Operand(kind="input", index=0), Operand(kind="input", index=1)
SUM = program(("add", X, Y), ("half", value(1)), ("maximum", value(2), number(0.0)))
SCALED = program(("multiply", X, Operand(kind="channel")), channels=[np.linspace(1, 2, 7, dtype=np.float32)])
THREE = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
LAYERS: list[tuple[Kernel, Operator]] = [
    (conv2d_f16.KERNEL, convolution((6, 7, 12), 9, replace(THREE, strides=(2, 2)), finish=RESIDUAL)),
    (conv2d_f16.KERNEL, convolution((9, 4, 1), 8, Window(kernel=(4, 2), padding=(2, 0, 1, 2), dilation=(2, 1)))),
    (
        half_floats_helium.DEPTHWISE_F16,
        convolution((5, 5, 7), 7, replace(THREE, strides=(2, 1)), groups=7, finish=RESIDUAL),
    ),
    (half_floats_helium.POINTWISE_F16, convolution((3, 3, 7), 13, Window(kernel=(1, 1)), finish=RESIDUAL)),
    (half_floats_helium.DENSE_F16, dense(1, 15, 7)),
    (pool2d_f16.KERNEL, pool("average", (5, 5, 6), THREE)),
    (half_floats_helium.SOFTMAX_F16, HalfSoftmax(inputs=(halves(3, 11),), outputs=(halves(3, 11),))),
]
MORE_LAYERS: list[tuple[Kernel, Operator]] = [
    (conv2d_f16.KERNEL, convolution((5, 8, 3), 15, THREE, finish=RELU)),
    (conv2d_f16.KERNEL, convolution((4, 5, 6), 3, Window(kernel=(1, 1), strides=(2, 2)))),
    (half_floats_helium.DEPTHWISE_F16, convolution((6, 9, 13), 13, THREE, groups=13, finish=RELU)),
    (half_floats_helium.POINTWISE_F16, convolution((4, 5, 7), 22, Window(kernel=(1, 1)), finish=RELU)),
    *((half_floats_helium.DENSE_F16, dense(rows, channels, 15)) for rows, channels in ((2, 8), (3, 7), (7, 24))),
    (pool2d_f16.KERNEL, pool("max", (6, 7, 21), Window(kernel=(3, 2), strides=(2, 2), padding=(1, 0, 1, 1)))),
    (pool2d_f16.KERNEL, pool("average", (5, 5, 6), THREE, include=True)),
    (half_floats_helium.SOFTMAX_F16, HalfSoftmax(inputs=(halves(8),), outputs=(halves(8),), log=True)),
]
EXACT: list[tuple[Kernel, Operator]] = [
    (half_floats_helium.ELEMENTWISE_F16, elementwise(SUM, (1, 3, 5, 6), (1, 3, 5, 6))),
    (half_floats_helium.ELEMENTWISE_F16, elementwise(SUM, (4, 7), (7,))),
    (half_floats_helium.ELEMENTWISE_F16, elementwise(SCALED, (1, 2, 3, 7))),
    (half_floats_helium.CAST_F16, HalfCast(inputs=(halves(1, 3, 5, 3),), outputs=(floats(1, 3, 5, 3),))),
    (half_floats_helium.CAST_F16, HalfCast(inputs=(floats(7),), outputs=(halves(7),))),
]
MORE_EXACT: list[tuple[Kernel, Operator]] = [(half_floats_helium.ELEMENTWISE_F16, elementwise(SUM, (3, 9), (1,)))]


CASES = {"few": (LAYERS, EXACT), "many": (MORE_LAYERS, MORE_EXACT)}


@pytest.mark.parametrize("cases", some_of(["few"], sweep=["many"]))
def test_every_kernel_every_way(cases: str) -> None:
    """Whole, row by row, in the smallest rings, with pixels apart, in place: the same bits, near the reference."""
    near, exact = CASES[cases]
    kernels = {id(operator): kernel for kernel, operator in (*near, *exact)}
    operators = [operator for _, operator in (*near, *exact)]
    inputs = [[elements(t, 5 + i) for i, t in enumerate(operator.inputs)] for operator in operators]

    def implement(operator: Operator, stored: StoredRows) -> Implementation:
        return implementation(kernels[id(operator)], operator, stored)

    every = run_every_way(operators, inputs, implement)
    for index, (operator, arrays, runs) in enumerate(zip(operators, inputs, every, strict=True)):
        expected = runs.implementation.reference(arrays)[0]
        assert runs.whole.dtype == expected.dtype == operator.output.dtype
        if index >= len(near):
            np.testing.assert_array_equal(runs.whole, expected)
        assert_near(runs.whole, expected)
        for way, found in runs.others.items():
            np.testing.assert_array_equal(found.view(np.uint8), runs.whole.view(np.uint8), err_msg=way)


def assert_near(found: np.ndarray, expected: np.ndarray) -> None:
    """At most two numbers of float16 away, where sums in another precision fall to the other side of a middle."""
    wide, wanted = found.astype(np.float64), expected.astype(np.float64)
    steps = np.spacing(np.abs(expected).astype(np.float16)).astype(np.float64)
    np.testing.assert_array_less(np.abs(wide - wanted), 2 * steps + 1e-6)
    assert np.count_nonzero(found != expected) <= 0.02 * found.size + 1, "most are the nearest numbers themselves"


def test_products_beyond_float16_cancel() -> None:
    """Sums are float32: products of 90,000 and -90,000, which no float16 holds, leave what is added last."""
    rows = np.repeat(np.array([[300, -300, 300]], np.float32), 8, axis=0)
    operator = replace(dense(1, 8, 3), weight=rows, bias=np.zeros(8, np.float32))
    made = implementation(half_floats_helium.DENSE_F16, operator, StoredRows())
    found = run_kernel(operator, made, [np.array([[300, 300, 2.0**-5]], np.float16)])[0]
    np.testing.assert_array_equal(found, np.full((1, 8), 9.375, np.float16))


def test_a_finish_without_vectors_is_computed_one_by_one() -> None:
    operator = elementwise(program(("sigmoid", X)), (3, 5))
    made = implementation(half_floats_helium.ELEMENTWISE_F16, operator, StoredRows())
    x = elements(operator.inputs[0], 3)
    assert_near(run_kernel(operator, made, [x])[0], made.reference([x])[0])


@pytest.mark.parametrize("method", ["max", "average"])
def test_a_pool_adds_up_rows_as_they_come(method: str) -> None:
    """Sums are float32 between the calls, so that no bit depends on how many rows come at once."""
    operator = pool(method, (6, 3, 7), Window(kernel=(6, 3)))
    x = (np.random.default_rng(1).integers(-64, 64, size=(1, 6, 3, 7)) / 16).astype(np.float16)
    whole = implementation(pool2d_f16.KERNEL, operator, StoredRows())
    (expected,) = run_kernel(operator, whole, [x])
    assert whole.accumulating is not None
    for at_once in (1, 4) if method == "average" else (4,):
        made = whole.accumulating.implement(6, StoredRows(inputs=(Kept(stored=at_once),)))
        found, sums = run_accumulating(operator, made, [x], parts=6, at_once=at_once)
        np.testing.assert_array_equal(found, expected)
        assert sums.dtype == np.float32 and made.reference([x])[1].shape == sums.shape


def test_a_dense_layer_by_runs_of_channels() -> None:
    """Each run of a result's channels is a layer of its own on a part of the weights."""
    operator = dense(1, 36, 15)
    x = elements(operator.inputs[0], 1)
    whole = implementation(half_floats_helium.DENSE_F16, operator, StoredRows())
    assert whole.in_rows is not None
    expected, found = [run_kernel(operator, made, [x])[0] for made in (whole, whole.in_rows(StoredRows()))]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kernel", "operator", "reason"),
    [
        (conv2d_f16.KERNEL, convolution((5, 5, 4), 6, THREE, groups=2), "one group of channels"),
        (conv2d_f16.KERNEL, convolution((5, 7, 4), 6, replace(THREE, dilation=(1, 2))), "columns without dilation"),
        (conv2d_f16.KERNEL, convolution((5, 5, 4), 6, THREE, finish=SIGMOID), "sums, products and bounds"),
        (
            half_floats_helium.DENSE_F16,
            replace(dense(1, 4, 4), weight=np.full((4, 4), 0.1, np.float32)),
            "represent every weight exactly",
        ),
    ],
)
def test_refusals(kernel: Kernel, operator: Operator, reason: str) -> None:
    refusal = kernel.refuses(operator, M55)
    assert refusal is not None and reason in refusal.reason
