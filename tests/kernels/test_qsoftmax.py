"""Integer softmax: C against reference byte for byte, reference within one step of the real one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.softmax import qsoftmax
from codegen_c.operators.kinds import QSoftmax, Quantization, TensorType
from codegen_c.targets.dsp.kernels import softmax as softmax_dsp
from codegen_c.targets.helium.kernels import softmax as softmax_helium
from tests.kernels.dsp import for_cortex_m4
from tests.kernels.harness import run_kernel
from tests.kernels.helium import M55, assert_same_bytes, takes
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
    results = assert_c_equals_reference(list(operators), inputs, qsoftmax.QSOFTMAX)
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
    (result,) = assert_c_equals_reference([operator], [[x]], qsoftmax.QSOFTMAX)
    assert_within_one_step(operator, x, result)


def softmax(*shape: int, scale: float = 1 / 256, dtype: str = "int8") -> QSoftmax:
    source = TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=0.06, zero_point=3))
    output = TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=-128))
    return QSoftmax(inputs=(source,), outputs=(output,))


@settings(FEW, max_examples=3)
@given(st.lists(softmaxes().filter(takes(softmax_helium.QSOFTMAX)), min_size=2, max_size=5), seeds)
def test_targets(operators: list[QSoftmax], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(softmax_dsp.QSOFTMAX))
    assert_same_bytes(softmax_helium.QSOFTMAX, list(operators), seed)


def test_targets_round_ties_as_the_portable_kernel() -> None:
    """Equal elements, as many as a power of two: factors end in zeros, and halves of steps are met."""
    operators = [softmax(3, 64, scale=scale, dtype=dtype) for scale in (1 / 64, 1 / 96) for dtype in ("int8", "uint8")]
    inputs = [[np.full(operator.output.shape, 5, operator.inputs[0].dtype)] for operator in operators]
    for (array,) in inputs:
        array[1, 32:] = 4
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(softmax_dsp.QSOFTMAX))
    for operator, arrays in zip(operators, inputs, strict=True):
        implementation = softmax_helium.QSOFTMAX.implement(operator, M55, StoredRows())
        np.testing.assert_array_equal(
            run_kernel(operator, implementation, arrays)[0], implementation.reference(arrays)[0]
        )


def test_targets_leave_one_vector_and_other_scales() -> None:
    taken = takes(softmax_helium.QSOFTMAX)
    assert taken(softmax(2, 10)) and not taken(softmax(1, 10))
    assert not taken(softmax(2, 10, scale=1 / 63)) and not taken(softmax(2, 10, scale=2.0**-27))
