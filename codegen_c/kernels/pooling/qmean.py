"""Kernel for the mean or sum of a quantized tensor over any axes, integers only, of 8 or 16 bits."""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, loop
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.pooling.qpool2d import litert_mean_factor, mean_requantize
from codegen_c.kernels.shared.bit_widths import quantized_words, wide_kernel
from codegen_c.kernels.shared.requantize import (
    Requantize,
    largest_distance,
    quantization,
    quantized_bytes,
    results_fit,
    scale_of,
)
from codegen_c.kernels.shared.window import strided
from codegen_c.operators.kinds import QMean

# Mean or sum of a quantized tensor over any axes, integers only: one sum for each element of the output, ascending.
#
# int8 or uint8[...] -> int8 or uint8[...], reduced axes with an extent of 1. x - zero point is added up in int32 and
# multiplied by input scale / (output scale * number of elements), with either rounding, and clamped.


def reference(operator: QMean, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    centred = inputs[0].astype(np.int64) - quantization(operator.inputs[0]).zero_point
    return [finish(operator).run(centred.sum(axis=operator.axes, keepdims=True))]


def sums_fit(operator: QMean, target: Target) -> bool:
    """the sum of all elements must fit an int32, and be less than 2^30 steps of the output"""
    largest = np.array(largest_distance(operator.inputs[0]) * num_added(operator))
    return bool(0 < largest < 1 << 31) and results_fit(-largest, largest, _factors(operator))


def num_added(operator: QMean) -> int:
    """Return the number of input elements that are added to one output element."""
    return int(np.prod([operator.inputs[0].shape[axis] for axis in operator.axes], dtype=np.int64))


def _factors(operator: QMean) -> np.ndarray:
    count = num_added(operator) if operator.divide else 1
    if operator.rounding == "litert":
        return litert_mean_factor(operator, count)
    return np.array([scale_of(operator.inputs[0]) / (scale_of(operator.output) * count)])


def finish(operator: QMean) -> Requantize:
    if operator.rounding == "tflite" and operator.divide:
        return mean_requantize(operator, num_added(operator), low=operator.low, high=operator.high)
    largest = np.array([largest_distance(operator.inputs[0]) * num_added(operator)])
    return Requantize.of(
        _factors(operator), output=operator.output, low=operator.low, high=operator.high, rounding=operator.rounding
    ).proved(-largest, largest)


def implement(operator: QMean, target: Target, stored: StoredRows) -> Implementation:
    requantize = finish(operator)
    return Implementation(
        kernel=QMEAN.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
            ),
            body=_body(operator, requantize),
            helpers=requantize.helper(),
            includes=requantize.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=operator.inputs[0].num_elements * 4 + operator.output.num_elements * 20,
        accumulation="reduced axes ascending",
        exact=True,
    )


def _body(operator: QMean, requantize: Requantize) -> str:
    """Return loops over the kept axes, around loops over the reduced ones; adjacent axes of one kind share a loop."""
    runs = _runs(operator)
    strides = [int(np.prod([extent for extent, _ in runs[index + 1 :]], dtype=np.int64)) for index in range(len(runs))]
    names = [f"{'r' if reduced else 'i'}{index}" for index, (_, reduced) in enumerate(runs)]
    definitions, place = strided(dict(zip(names, strides, strict=True)))
    zero_point = quantization(operator.inputs[0]).zero_point
    lines = [f"sum += input[{place}];"]
    for name, (extent, reduced) in reversed(list(zip(names, runs, strict=True))):
        if reduced:
            lines = loop(name, extent, lines)
    definitions.append(f"const int32_t start = {-zero_point * num_added(operator)}; /* zero points of all elements */")
    lines = ["int32_t sum = start;", *lines, f"*output++ = {requantize.call('sum', '')};"]
    for name, (extent, reduced) in reversed(list(zip(names, runs, strict=True))):
        if not reduced:
            lines = loop(name, extent, lines)
    return "\n".join([*definitions, *lines])


def _runs(operator: QMean) -> list[tuple[int, bool]]:
    """Return (extent, is reduced) of the axes; adjacent axes of one kind are joined, and extents of 1 left out."""
    runs: list[tuple[int, bool]] = []
    for axis, extent in enumerate(operator.inputs[0].shape):
        reduced = axis in operator.axes
        if extent == 1:
            continue
        if runs and runs[-1][1] == reduced:
            runs[-1] = (runs[-1][0] * extent, reduced)
        else:
            runs.append((extent, reduced))
    return runs


QMEAN = Kernel(
    name="qmean_i8",
    title="Mean or sum of a quantized tensor over any axes, 8 bits",
    operator=QMean,
    implement=implement,
    constraints=(quantized_bytes, sums_fit),
)


# Mean or sum of a 16-bit quantized tensor over any axes, integers only, by the loops of the 8-bit kernel.
#
# int16 or uint16[...] -> int16 or uint16[...], reduced axes with an extent of 1; sums in int32.

QMEAN_I16 = wide_kernel(
    "qmean_i16", "Mean or sum of a quantized tensor over any axes, 16 bits", QMEAN, quantized_words, sums_fit
)


KERNELS = (QMEAN, QMEAN_I16)
