"""Integer softmax: C against reference byte for byte, reference within one step of the real one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.softmax import qsoftmax
from codegen_c.operators.kinds import QSoftmax, TensorType
from codegen_c.operators.quantization import Quantization
from tests.kernels.quantized import FEW, assert_c_equals_reference, elements, limits, real, seeds, tensor_types


@st.composite
def softmaxes(draw: st.DrawFn) -> QSoftmax:
    leading = draw(st.sampled_from(((), (1,), (3,), (1, 2, 3))))
    length = draw(st.integers(1, 40) | st.just(1000))
    scale = draw(st.sampled_from((1 / 256, 1 / 256, 1 / 128, 1e-4, 0.4, 3.0, 100.0)))
    source, output = draw(tensor_types((*leading, length))), draw(tensor_types((*leading, length), scale=scale))
    return QSoftmax(inputs=(source,), outputs=(output,))


def assert_within_one_step(operator: QSoftmax, x: np.ndarray, result: np.ndarray) -> None:
    value = real(operator.inputs[0], x)
    exponential = np.exp(value - value.max(axis=-1, keepdims=True))
    assert operator.output.quantization is not None
    probability = exponential / exponential.sum(axis=-1, keepdims=True)
    steps = np.rint(probability / np.float32(operator.output.quantization.scale))
    expected = np.clip(steps + operator.output.quantization.zero_point, *limits(operator.output))
    assert np.abs(result - expected).max() <= 1


@FEW
@given(st.lists(softmaxes(), min_size=1, max_size=6), seeds)
def test_softmaxes(operators: list[QSoftmax], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qsoftmax.KERNEL)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        assert_within_one_step(operator, x, result)


@pytest.mark.parametrize("input_scale", [1e-6, 0.06, 1.0])
@pytest.mark.parametrize("kind", ["equal", "one largest", "random"])
def test_the_longest_rows(input_scale: float, kind: str) -> None:
    """65535 elements: neither the sum overflows, nor do many small exponentials vanish from it."""
    shape = (1, qsoftmax.MAX_LENGTH)
    source = TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=input_scale, zero_point=0))
    output = TensorType(shape=shape, dtype="uint8", quantization=Quantization(scale=2.0**-20, zero_point=0))
    x = np.full(shape, -128, np.int8)
    if kind == "one largest":
        x[0, 77] = 127
    if kind == "random":
        x = elements(source, 3)
    operator = QSoftmax(inputs=(source,), outputs=(output,))
    (result,) = assert_c_equals_reference([operator], [[x]], qsoftmax.KERNEL)
    assert_within_one_step(operator, x, result)
