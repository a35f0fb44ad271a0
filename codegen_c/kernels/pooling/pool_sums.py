"""Pooling of a QDQ chain in numpy: sums or largest elements of windows, and how they are finished."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.requantize import Requantize, quantization, scale_of
from codegen_c.kernels.shared.window import taps, taps_inside
from codegen_c.operators.kinds import Operator, QPool2d


def reference(operator: QPool2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    sums, counts = window_sums(operator, inputs[0]), counted_taps(operator)
    if operator.method == "max":
        return [np.minimum(sums, operator.high).astype(operator.output.dtype)]
    if not operator.has_factor:
        averages = requantize_tflite.divide(sums, counts[:, :, np.newaxis])
        return [np.clip(averages, operator.low, operator.high).astype(operator.output.dtype)]
    return [average(operator).run(sums, (counts - counts.min())[:, :, np.newaxis])]


def window_sums(operator: QPool2d, x: np.ndarray) -> np.ndarray:
    """Unfinished output elements, one per window: int64 sums, or the largest elements."""
    size = operator.output.shape[1:3]
    if operator.method == "max":
        largest = np.full(operator.output.shape, operator.low, dtype=np.int64)
        for _, _, tap in taps(x, operator.window, (size[0], size[1]), operator.low):
            largest = np.maximum(largest, tap)
        return largest
    zero_point = quantization(operator.inputs[0]).zero_point if operator.has_factor else 0
    sums = np.zeros(operator.output.shape, dtype=np.int64)
    for _, _, tap in taps(x, operator.window, (size[0], size[1]), zero_point):
        sums += tap.astype(np.int64) - zero_point
    return sums


def counted_taps(operator: QPool2d) -> np.ndarray:
    """Number of taps that the sum of each output pixel is divided by, int64[P, Q]."""
    extents = zip(operator.inputs[0].shape[1:3], operator.output.shape[1:3], strict=True)
    rows, columns = (taps_inside(operator.window, axis, *extent) for axis, extent in enumerate(extents))
    if operator.count_include_pad:
        return np.full((len(rows), len(columns)), operator.window.kernel[0] * operator.window.kernel[1])
    return np.outer(rows, columns)


def factors(operator: QPool2d) -> np.ndarray:
    """Output steps of one unit of the sum, for each count from the smallest to the largest that occurs."""
    counts = counted_taps(operator)
    used = np.arange(counts.min(), counts.max() + 1, dtype=np.float64)
    return scale_of(operator.inputs[0]) / (scale_of(operator.output) * used)


def average(operator: QPool2d) -> Requantize:
    """Requantization of sums, where they have a factor."""
    if operator.rounding == "tflite":
        count = operator.window.kernel[0] * operator.window.kernel[1]
        return mean_requantize(operator, count, low=operator.low, high=operator.high)
    return Requantize.of(factors(operator), output=operator.output, low=operator.low, high=operator.high)


def mean_requantize(operator: Operator, count: int, *, low: int, high: int) -> Requantize:
    """TensorFlow Lite's requantization of sums of `count` elements to their mean."""
    ratio = scale_of(operator.inputs[0]) / scale_of(operator.output)
    mantissa, shift = requantize_tflite.fixed_point_of_mean(ratio, count)
    return Requantize(
        mantissa=np.array([mantissa], np.int32), shift=np.array([shift], np.uint8), output=operator.output, low=low,
        high=high, rounding="tflite",
    )  # fmt: skip
