"""Quotients of quantized tensors: C against the reference byte for byte, and the reference against real arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.elementwise import qdivide
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import QDivide
from tests.kernels.harness import HOST
from tests.kernels.quantized import FEW, assert_c_equals_reference, clamps, elements, real, seeds, tensor_types
from tests.kernels.test_qbinary import byte_tensor

PAIRS = (
    ((1, 5, 4, 3), (1, 5, 4, 3)), ((1, 5, 4, 3), (1, 1, 1, 3)), ((1, 1, 1, 6), (1, 3, 2, 6)),
    ((1, 4, 3, 5), (1, 4, 3, 1)), ((2, 3, 7), (3, 7)), ((9,), (9,)), ((), ()),
)  # fmt: skip


@st.composite
def quotients(draw: st.DrawFn) -> QDivide:
    shapes = draw(st.sampled_from(PAIRS))
    output = draw(tensor_types(np.broadcast_shapes(*shapes)))
    low, high = draw(clamps(output))
    inputs = tuple(draw(tensor_types(shape)) for shape in shapes)
    return QDivide(inputs=inputs, outputs=(output,), low=low, high=high)


def steps(operator: QDivide, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The real quotients in steps of the output, clamped; 0 / 0 counts as 0."""
    assert operator.output.quantization is not None
    dividend, divisor = real(operator.inputs[0], a), real(operator.inputs[1], b)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.nan_to_num(dividend / np.abs(divisor) * np.where(divisor < 0, -1, 1), nan=0.0)
    exact = quotient / float(np.float32(operator.output.quantization.scale)) + operator.output.quantization.zero_point
    return np.clip(exact, operator.low, operator.high)


@FEW
@given(st.lists(quotients(), min_size=2, max_size=8), seeds)
def test_quotients(operators: list[QDivide], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qdivide.KERNEL)
    for operator, (a, b), result in zip(operators, inputs, results, strict=True):
        assert np.abs(result - steps(operator, a, b)).max() < 0.52


def test_all_pairs_of_elements() -> None:
    """Also a divisor of zero, which gives the largest or the smallest result, and divisors on both sides of it."""
    a, b = (x.reshape(-1).astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    for scale in (1.0, 0.01, 30.0):
        operator = QDivide(
            inputs=(byte_tensor(a.shape, 0.5, 3), byte_tensor(b.shape, 0.25, -9)),
            outputs=(byte_tensor(a.shape, scale, 1),), low=-128, high=127,
        )  # fmt: skip
        result = qdivide.reference(operator, [a, b])[0]
        assert np.abs(result - steps(operator, a, b)).max() < 0.52
        by_zero = result[b == -9]
        assert set(by_zero[a[b == -9] > 3]) == {127} and set(by_zero[a[b == -9] < 3]) == {-128}


def test_other_roundings_are_refused() -> None:
    tensor = byte_tensor((4,), 0.5)
    operator = QDivide(inputs=(tensor, tensor), outputs=(tensor,), low=-128, high=127, rounding="tflite")
    assert not isinstance(select(operator, HOST), Implementation)
    assert isinstance(select(replace(operator, rounding="onnx"), HOST), Implementation)
