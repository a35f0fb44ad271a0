"""Integer add, subtract, multiply: C against reference byte for byte, reference against real arithmetic."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.elementwise import qbinary
from codegen_c.operators.kinds import QBinary, Quantization, TensorType
from tests.kernels.harness import HOST, compile_kernels
from tests.kernels.quantized import (
    FEW,
    assert_c_equals_reference,
    assert_rounds,
    clamps,
    elements,
    real,
    seeds,
    tensor_types,
)

FUNCTIONS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}
shapes = st.sampled_from(((1, 5, 4, 3), (2, 3, 2, 5), (7,), (1, 9), ()))


@st.composite
def binaries(draw: st.DrawFn) -> QBinary:
    shape = draw(shapes)
    output = draw(tensor_types(shape))
    low, high = draw(clamps(output))
    return QBinary(
        inputs=(draw(tensor_types(shape)), draw(tensor_types(shape))),
        outputs=(output,),
        function=draw(st.sampled_from(("add", "subtract", "multiply"))),
        low=low,
        high=high,
    )


@FEW
@given(st.lists(binaries(), min_size=1, max_size=8), seeds)
def test_binaries(operators: list[QBinary], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qbinary.QBINARY)
    for operator, arrays, result in zip(operators, inputs, results, strict=True):
        value = FUNCTIONS[operator.function](*map(real, operator.inputs, arrays))
        assert_rounds(result, value, operator.output, operator.low, operator.high)


def byte_tensor(shape: tuple[int, ...], scale: float, zero_point: int = 0) -> TensorType:
    return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=zero_point))


def test_every_sum_is_rounded_once_and_halves_to_even() -> None:
    """All pairs of elements; quarters and halves of a step make ties that two roundings would get wrong."""
    a, b = (x.reshape(-1).astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    operator = QBinary(
        inputs=(byte_tensor(a.shape, 0.25, 3), byte_tensor(b.shape, 0.5, -9)),
        outputs=(byte_tensor(a.shape, 1.0, 1),),
        function="add",
        low=-128,
        high=127,
    )
    (result,) = assert_c_equals_reference([operator], [[a, b]], qbinary.QBINARY)
    exact = (a.astype(np.int64) - 3) / 4 + (b.astype(np.int64) + 9) / 2
    np.testing.assert_array_equal(result, np.clip(np.rint(exact) + 1, -128, 127))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_scalars_keep_rank_zero(function: str) -> None:
    tensor = byte_tensor((), 0.5)
    operator = QBinary(inputs=(tensor, tensor), outputs=(tensor,), function=function, low=-128, high=127)
    assert_c_equals_reference([operator], [[np.array(9, np.int8), np.array(6, np.int8)]], qbinary.QBINARY)


def test_output_may_take_the_place_of_either_input() -> None:
    shape = (1, 4, 3, 2)
    tensor = byte_tensor(shape, 0.1)
    operator = QBinary(inputs=(tensor, tensor), outputs=(tensor,), function="subtract", low=-128, high=127)
    implementation = qbinary.QBINARY.implement(operator, HOST, StoredRows())
    assert implementation.in_place == (0, 1)
    entry = compile_kernels([implementation])[0]
    for place in implementation.in_place:
        arrays = [elements(tensor, 1), elements(tensor, 2)]
        (expected,) = implementation.reference(arrays)
        pointers = [array.ctypes.data for array in arrays]
        entry(*map(ctypes.c_void_p, [*pointers, pointers[place]]), 0, shape[1])
        np.testing.assert_array_equal(arrays[place], expected)
