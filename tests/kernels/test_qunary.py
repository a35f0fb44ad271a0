"""Tables of functions of one element: C against reference byte for byte, reference against float arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.elementwise import qunary
from codegen_c.operators.kinds import Quantization, QUnary, TensorType
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from tests.kernels.helium import assert_same_bytes
from tests.kernels.quantized import FEW, assert_c_equals_reference, elements, limits, real, seeds, tensor_types

ELEMENT = Operand(kind="value")
FUNCTIONS = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "abs": np.abs,
    "negative": np.negative,
}


def apply(function: str) -> ScalarProgram:
    return ScalarProgram(instructions=(Instruction(function=function, operands=(ELEMENT,)),))


@st.composite
def unaries(draw: st.DrawFn) -> tuple[str, QUnary]:
    function = draw(st.sampled_from(tuple(FUNCTIONS)))
    shape = draw(st.sampled_from(((1, 5, 4, 3), (2, 3, 2, 5), (300,), (1, 9), ())))
    operator = QUnary(inputs=(draw(tensor_types(shape)),), outputs=(draw(tensor_types(shape)),), finish=apply(function))
    return function, operator


@FEW
@given(st.lists(unaries(), min_size=1, max_size=8), seeds)
def test_unaries(cases: list[tuple[str, QUnary]], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for _, operator in cases]
    results = assert_c_equals_reference([operator for _, operator in cases], inputs, qunary.KERNEL)
    for (function, operator), (x,), result in zip(cases, inputs, results, strict=True):
        output = operator.output
        assert output.quantization is not None
        with np.errstate(over="ignore"):
            steps = FUNCTIONS[function](real(operator.inputs[0], x)) / np.float32(output.quantization.scale)
        expected = np.clip(np.rint(steps) + output.quantization.zero_point, *limits(output))
        assert np.abs(result - expected).max() <= 1


@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", -5), ("uint8", 130)])
def test_the_table_holds_every_element(dtype: str, zero_point: int) -> None:
    """The identity between equal quantizations gives back all 256 elements."""
    info = np.iinfo(dtype)
    tensor = TensorType(shape=(256,), dtype=dtype, quantization=Quantization(scale=0.037, zero_point=zero_point))
    x = np.arange(info.min, info.max + 1).astype(dtype)
    operator = QUnary(inputs=(tensor,), outputs=(tensor,), finish=ScalarProgram())
    (result,) = assert_c_equals_reference([operator], [[x]], qunary.KERNEL)
    np.testing.assert_array_equal(result, x)


def test_infinities_saturate_and_nan_is_the_least() -> None:
    tensor = TensorType(shape=(3,), dtype="int8", quantization=Quantization(scale=1.0, zero_point=4))
    operator = QUnary(inputs=(tensor,), outputs=(tensor,), finish=apply("log"))
    # Real values 0, -1 and 1: minus infinity, nan, zero.
    (result,) = assert_c_equals_reference([operator], [[np.array([4, 3, 5], np.int8)]], qunary.KERNEL)
    assert result.tolist() == [-128, -128, 4]


@FEW
@given(st.lists(unaries(), min_size=1, max_size=8), seeds)
def test_helium(cases: list[tuple[str, QUnary]], seed: int) -> None:
    assert_same_bytes(elementwise_helium.QUNARY, [operator for _, operator in cases], seed)
