"""Means, sums, interpolation of QDQ tensors: C against reference byte for byte, reference against real numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Refusal
from codegen_c.kernels.movement import qinterpolate
from codegen_c.kernels.pooling import qmean
from codegen_c.kernels.shared.requantize import quantization, scale_of
from codegen_c.operators.kinds import QInterpolate, QMean, Quantization, TensorType
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from tests.kernels.harness import HOST
from tests.kernels.helium import assert_same_bytes
from tests.kernels.interpolation_taps import taps
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


@st.composite
def means(draw: st.DrawFn) -> QMean:
    shape = draw(st.sampled_from(((1, 5, 4, 3), (2, 3, 2, 5), (7, 4), (9,), (3, 1, 4))))
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    output = draw(tensor_types(tuple(1 if axis in axes else n for axis, n in enumerate(shape))))
    low, high = draw(clamps(output))
    source = draw(tensor_types(shape))
    return QMean(inputs=(source,), outputs=(output,), axes=axes, divide=draw(st.booleans()), low=low, high=high)


@FEW
@given(st.lists(means(), min_size=1, max_size=8), seeds)
def test_means(operators: list[QMean], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qmean.QMEAN)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        value = real(operator.inputs[0], x).sum(axis=operator.axes, keepdims=True)
        value = value / qmean.num_added(operator) if operator.divide else value
        assert_rounds(result, value, operator.output, operator.low, operator.high)


@FEW
@given(st.lists(means(), min_size=1, max_size=8), seeds)
def test_means_as_tensorflow_lite_rounds(operators: list[QMean], seed: int) -> None:
    """One step off from real arithmetic at most: the factor of a mean has fewer bits, and is rounded twice."""
    taken = [replace(operator, rounding="tflite") for operator in operators]
    taken = [operator for operator in taken if qmean.QMEAN.refuses(operator, HOST) is None]
    inputs = [[elements(operator.inputs[0], seed)] for operator in taken]
    results = assert_c_equals_reference(list(taken), inputs, qmean.QMEAN) if taken else []
    for operator, (x,), result in zip(taken, inputs, results, strict=True):
        value = real(operator.inputs[0], x).sum(axis=operator.axes, keepdims=True)
        value = value / qmean.num_added(operator) if operator.divide else value
        steps = value / scale_of(operator.output) + quantization(operator.output).zero_point
        assert np.abs(result - np.clip(steps, operator.low, operator.high)).max() <= 1


@st.composite
def interpolations(draw: st.DrawFn) -> QInterpolate:
    height, width, *sizes = (draw(st.integers(1, 6)) for _ in range(4))
    count, channels = draw(st.sampled_from(((1, 3), (1, 1), (2, 2), (1, 9))))
    source = draw(tensor_types((count, height, width, channels), scale=0.05))
    # Equal scales, a ratio whose sums have ties, and a ratio whose sums have none.
    scale = draw(st.sampled_from((0.05, 0.0333, 0.075)))
    output = draw(tensor_types((count, sizes[0], sizes[1], channels), scale=scale))
    low, high = draw(clamps(output))
    kinds = st.sampled_from(("linear", "cubic", "mean"))
    return QInterpolate(
        inputs=(source,), outputs=(output,), rows=taps(height, sizes[0], draw(kinds)),
        columns=taps(width, sizes[1], draw(kinds)), low=low, high=high,
    )  # fmt: skip


@FEW
@given(st.lists(interpolations(), min_size=1, max_size=8), seeds)
def test_interpolations(operators: list[QInterpolate], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qinterpolate.KERNEL)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        value = real(operator.inputs[0], x)
        for axis, (places, weights) in ((1, operator.rows), (2, operator.columns)):
            moved = np.moveaxis(value, axis, 0)[places]
            value = np.moveaxis((moved * weights[:, :, None, None, None]).sum(axis=1), 0, axis)
        steps = np.rint(value / np.float32(scale_of(operator.output))) + quantization(operator.output).zero_point
        assert np.abs(result - np.clip(steps, operator.low, operator.high)).max() <= 1


@FEW
@given(st.lists(interpolations(), min_size=1, max_size=8), seeds)
def test_interpolations_with_helium(operators: list[QInterpolate], seed: int) -> None:
    assert_same_bytes(elementwise_helium.QINTERPOLATE, operators, seed)


@pytest.mark.parametrize(
    ("weights", "reason"), [([0.5], "add up to 1"), ([-1.0], "add up to 1"), ([2.0, -1.0], "at most 2")]
)
def test_refuses_weights_that_are_no_average(weights: list[float], reason: str) -> None:
    source = TensorType(shape=(1, 1, len(weights), 1), dtype="int8", quantization=Quantization(scale=1.0, zero_point=0))
    one = (np.zeros((1, 1), np.int64), np.ones((1, 1), np.float32))
    columns = (np.arange(len(weights))[None], np.array([weights], np.float32))
    operator = QInterpolate(
        inputs=(source,), outputs=(replace(source, shape=(1, 1, 1, 1)),), rows=one, columns=columns, low=-128, high=127
    )
    refusal = qinterpolate.KERNEL.refuses(operator, HOST)
    assert isinstance(refusal, Refusal) and reason in refusal.reason
