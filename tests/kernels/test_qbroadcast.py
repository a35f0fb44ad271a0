"""Integer add, subtract, multiply of a repeated operand: C against reference, reference against real numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.elementwise import qbinary
from codegen_c.operators.kinds import QBinary, Rounding
from tests.kernels.harness import HOST
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
from tests.kernels.test_qbinary import FUNCTIONS

SHAPES = (
    ((1, 5, 4, 3), (1, 1, 1, 3)),
    ((1, 1, 1, 3), (1, 5, 4, 3)),
    ((1, 5, 4, 3), (1, 5, 4, 1)),
    ((1, 5, 1, 3), (1, 1, 4, 3)),
    ((1, 5, 4, 3), ()),
    ((2, 3, 2, 5), (2, 1, 1, 5)),
    ((6, 7), (7,)),
    ((2, 1, 4), (3, 1)),
)


@st.composite
def broadcasts(draw: st.DrawFn, rounding: Rounding = "onnx") -> QBinary:
    shapes = draw(st.sampled_from(SHAPES))
    output = draw(tensor_types(np.broadcast_shapes(*shapes)))
    low, high = draw(clamps(output))
    inputs = tuple(draw(tensor_types(shape)) for shape in shapes)
    function = draw(st.sampled_from(("add", "subtract", "multiply")))
    return QBinary(inputs=inputs, outputs=(output,), function=function, low=low, high=high, rounding=rounding)


@FEW
@given(st.lists(broadcasts(), min_size=1, max_size=8), seeds)
def test_broadcasts(operators: list[QBinary], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qbinary.QBROADCAST)
    for operator, arrays, result in zip(operators, inputs, results, strict=True):
        value = FUNCTIONS[operator.function](*map(real, operator.inputs, arrays))
        assert_rounds(result, value, operator.output, operator.low, operator.high)


@FEW
@given(st.lists(broadcasts("tflite"), min_size=1, max_size=4), seeds)
def test_as_tensorflow_lite_rounds(operators: list[QBinary], seed: int) -> None:
    operators = [o for o in operators if qbinary.QBROADCAST.refuses(o, HOST) is None]
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qbinary.QBROADCAST)
    for operator, arrays, result in zip(operators, inputs, results, strict=True):
        wide = [np.broadcast_to(array, operator.output.shape) for array in arrays]
        same = replace(operator, inputs=tuple(replace(t, shape=operator.output.shape) for t in operator.inputs))
        np.testing.assert_array_equal(result, qbinary.reference(same, wide)[0])
