"""Integer softmax of runs: C against reference, whole and by rows, reference within one step of the real one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.softmax import qsoftmax
from codegen_c.operators.kinds import QMaskedSoftmax, Quantization, TensorType
from codegen_c.targets.dsp.kernels import softmax as softmax_dsp
from codegen_c.targets.helium.kernels import softmax as softmax_helium
from tests.kernels.dsp import for_cortex_m4
from tests.kernels.harness import HOST
from tests.kernels.helium import assert_same_bytes
from tests.kernels.quantized import FEW, assert_c_equals_reference, elements, limits, real, seeds, tensor_types

CAUSAL = np.triu(np.ones((6, 6), bool), 1)
NEAR = CAUSAL | np.tril(np.ones((6, 6), bool), -3)
PADDED = np.array([[0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], bool)
MASKS = (
    ((1, 2, 6, 6), CAUSAL), ((1, 6, 2, 6), NEAR[:, np.newaxis]), ((2, 6, 6), NEAR), ((1, 3, 4, 6), PADDED[:1]),
    ((3, 4, 6), PADDED[:, np.newaxis]), ((3, 2, 2, 6), PADDED.reshape(3, 1, 1, 6)),
    ((2, 3, 4, 6), np.broadcast_to(PADDED.reshape(3, 1, 6), (2, 3, 1, 6))),
)  # fmt: skip


@st.composite
def softmaxes(draw: st.DrawFn) -> QMaskedSoftmax:
    shape, mask = draw(st.sampled_from(MASKS))
    source = draw(tensor_types(shape, scale=draw(st.sampled_from((1 / 128, 0.06, 3.0)))))
    return QMaskedSoftmax(inputs=(source,), outputs=(draw(tensor_types(shape, scale=1 / 256)),), mask=mask)


def in_rows(kernel: Kernel) -> Kernel:
    """The kernel's form by rows."""

    def implement(operator: QMaskedSoftmax, target: Target, stored: StoredRows) -> Implementation:
        by_rows = kernel.implement(operator, target, StoredRows()).in_rows
        assert by_rows is not None
        return by_rows(stored)

    return replace(kernel, implement=implement)


def assert_within_one_step(operator: QMaskedSoftmax, x: np.ndarray, result: np.ndarray) -> None:
    value = np.where(operator.mask, -np.inf, real(operator.inputs[0], x))
    exponential = np.exp(value - value.max(axis=-1, keepdims=True))
    assert operator.output.quantization is not None
    steps = np.rint(exponential / exponential.sum(axis=-1, keepdims=True) / operator.output.quantization.scale)
    expected = np.clip(steps + operator.output.quantization.zero_point, *limits(operator.output))
    assert np.abs(result - expected).max() <= 1


@settings(FEW, max_examples=3)
@given(st.lists(softmaxes(), min_size=3, max_size=5), seeds)
def test_masked_softmaxes(operators: list[QMaskedSoftmax], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qsoftmax.QSOFTMAX_MASKED)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        assert_within_one_step(operator, x, result)
    assert_c_equals_reference(list(operators), inputs, in_rows(qsoftmax.QSOFTMAX_MASKED))
    for made in (softmax_dsp.QSOFTMAX_MASKED, in_rows(softmax_dsp.QSOFTMAX_MASKED)):
        assert_c_equals_reference(list(operators), inputs, for_cortex_m4(made))
    for made in (softmax_helium.QSOFTMAX_MASKED, in_rows(softmax_helium.QSOFTMAX_MASKED)):
        assert_same_bytes(made, list(operators), seed)


@pytest.mark.parametrize(("mask", "is_taken"), [([0, 1, 1], True), ([0, 1, 0], False), ([1, 1, 1], False)])
def test_a_vector_keeps_one_run(mask: list[int], is_taken: bool) -> None:
    kind = TensorType(shape=(2, 3), dtype="int8", quantization=Quantization(scale=1 / 256, zero_point=-128))
    operator = QMaskedSoftmax(inputs=(kind,), outputs=(kind,), mask=np.array(mask, bool))
    refusal = qsoftmax.QSOFTMAX_MASKED.refuses(operator, HOST)
    assert (refusal is None) == is_taken
    assert refusal is None or refusal.reason == qsoftmax.keeps_runs.__doc__
