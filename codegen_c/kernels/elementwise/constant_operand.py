"""Sums, differences and products of a quantized tensor and quantized constants, such as a factor for each channel.

int8 or int16[...], constants that repeat to its shape -> int8 or int16[...]. The kernels of two tensors read the
constants in place of a tensor, so that results are theirs in either rounding. For a constant of one number, the results
of all elements of 8 bits are a table. Results of repeated constants lie on a line for each constant, if a factor and an
addend in fixed point give every element of 8 bits its result.
"""

from __future__ import annotations

from functools import partial
from math import floor, log2

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qaffine, qbinary, qunary
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.constant_input import stored_with_constant, with_constant_input
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes, scale_of
from codegen_c.operators.kinds import Array, QConstantBinary


def reference(operator: QConstantBinary, inputs: list[Array], constant: Array | None = None) -> list[Array]:
    """The operator in numpy, bit for bit. constant: in another shape."""
    index, known = operator.index, operator.constant if constant is None else constant
    return qbinary.reference(operator.binary, [*inputs[:index], known, *inputs[index:]])


def two_tensors_have_a_kernel(operator: QConstantBinary, target: Target) -> bool:
    """a kernel of two tensors must take it with its constant as a tensor"""
    return isinstance(select(operator.binary, target), Implementation)


def implement(operator: QConstantBinary, target: Target, stored: StoredRows) -> Implementation:
    made = select(operator.binary, target, stored_with_constant(stored, operator.index))
    assert isinstance(made, Implementation), "constraints have selected one"
    return with_constant_input(made, operator.index, operator.constant)


def is_one_number(operator: QConstantBinary, target: Target) -> bool:
    """the constant must be one number"""
    return operator.constant.size == 1


def results_in_range(operator: QConstantBinary, target: Target) -> bool:
    """no result may reach 2^30 steps of the output before it is clamped, nor a product in rounding "tflite" 2^31"""
    return qbinary.results_in_range(operator.binary, target)


def implement_table(operator: QConstantBinary, target: Target, stored: StoredRows) -> Implementation:
    patterns = np.arange(256, dtype=np.uint8).view(operator.inputs[0].dtype)
    (results,) = reference(operator, [patterns])
    return qunary.by_table(NUMBER.name, operator, results.reshape(-1), stored, partial(reference, operator))


# Lines: a factor and an addend for each constant.
#
# TensorFlow Lite rounds both elements, and then their sum, so that results are not those of exact arithmetic rounded
# once. But for one constant they are a function of 256 elements, whose steps nearly always lie between two lines.

LEAST_REPEATS, MOST_CONSTANTS = 4, 4096
"""Times that constants repeat at the least, because each takes four bytes instead of one, and lines to look for."""
SLOPE_BITS, MOST_SLOPES = 18, 16
"""Slopes that are tried are the real one and others apart by so many bits of its fraction, on either side."""
UNBOUNDED = 1 << 48


def constants_repeat(operator: QConstantBinary, target: Target) -> bool:
    """the constants must repeat at least four times, and be 4096 at the most"""
    return _period(operator) <= min(MOST_CONSTANTS, operator.output.num_elements // LEAST_REPEATS)


def keeps_shape(operator: QConstantBinary, target: Target) -> bool:
    """the constants must not add elements"""
    return operator.inputs[0].shape == operator.output.shape


def lies_on_lines(operator: QConstantBinary, target: Target) -> bool:
    """all 256 elements must have their results by one factor and one addend for each constant"""
    return lines(operator) is not None


def _period(operator: QConstantBinary) -> int:
    return qaffine.period_of(operator.constant, operator.output.shape)


def lines(operator: QConstantBinary) -> qaffine.FixedAffine | None:
    """Return factors and addends that give every element its result, or None if a constant has none."""
    source, period, binary = operator.inputs[0], _period(operator), operator.binary
    constants = np.broadcast_to(operator.constant, operator.output.shape).reshape(-1)[:period]
    info = np.iinfo(source.dtype)
    elements = np.arange(info.min, info.max + 1, dtype=np.int64)[:, None]
    (expected,) = reference(operator, [elements], constants)
    slopes, offsets = _real_lines(operator, constants)
    largest = 256 * float(np.abs(slopes).max(initial=0)) + float(np.abs(offsets).max(initial=0)) + qaffine.BEYOND
    shift = min(qaffine.MOST_SHIFT, floor(30 - log2(largest)))
    if shift < qaffine.LEAST_SHIFT:
        return None
    steps, results = elements - quantization(source).zero_point, expected.astype(np.int64)
    factors, addends = np.zeros(period, np.int64), np.zeros(period, np.int64)
    is_open = np.ones(period, bool)
    for slope in sorted(range(-MOST_SLOPES, MOST_SLOPES + 1), key=abs):
        factor = np.rint(slopes * 2.0**shift).astype(np.int64) + slope * max(1, 1 << max(shift - SLOPE_BITS, 0))
        least = np.where(results > binary.low, (results << shift) - steps * factor, -UNBOUNDED).max(axis=0)
        most = np.where(results < binary.high, ((results + 1) << shift) - steps * factor, UNBOUNDED).min(axis=0) - 1
        found = is_open & (least <= most)
        factors[found], addends[found] = factor[found], _between(least, most)[found]
        is_open &= ~found
        if not is_open.any():
            break
    sums = steps * factors + addends
    if is_open.any() or np.abs(sums).max() >= 1 << 31 or np.abs(addends).max() >= 1 << 31:
        return None
    return qaffine.FixedAffine(factors=_one_if_equal(factors), addends=_one_if_equal(addends), shift=shift,
                               period=period)  # fmt: skip


def _between(least: Array, most: Array) -> Array:
    """Return numbers from the least to the most, in the middle where both are bounded."""
    middle: Array = (least + most) // 2
    middle[most >= UNBOUNDED - 1] = least[most >= UNBOUNDED - 1]
    middle[least <= -UNBOUNDED] = most[least <= -UNBOUNDED]
    return middle


def _real_lines(operator: QConstantBinary, constants: Array) -> tuple[Array, Array]:
    """Return output steps of one step of the input, and output steps at the input's zero point, float64[period]."""
    constant, output = operator.binary.inputs[operator.index], operator.output
    real = (constants.astype(np.int64) - quantization(constant).zero_point) * scale_of(constant)
    step, zeros = scale_of(operator.inputs[0]) / scale_of(output), np.zeros(constants.shape)
    if operator.binary.function == "multiply":
        return real * step, zeros
    is_subtracted = operator.binary.function == "subtract"
    sign = -1.0 if is_subtracted and operator.index == 0 else 1.0
    return zeros + sign * step, real / scale_of(output) * (-1.0 if is_subtracted and operator.index else 1.0)


def _one_if_equal(numbers: Array) -> Array:
    """Return int32[1] for numbers that are all equal, which the code has as a literal, else int32[period]."""
    return (numbers[:1] if (numbers == numbers[0]).all() else numbers).astype(np.int32)


def implement_lines(operator: QConstantBinary, target: Target, stored: StoredRows) -> Implementation:
    fixed, binary = lines(operator), operator.binary
    assert fixed is not None, "constraints have found some"
    return qaffine.of_fixed(LINES.name, operator, fixed, binary.low, binary.high, partial(reference, operator))


CONSTANT = Kernel(
    name="constant_operand",
    title="Quantized add, subtract and multiply of a tensor and constants",
    operator=QConstantBinary,
    implement=implement,
    constraints=(two_tensors_have_a_kernel,),
)
NUMBER = Kernel(
    name="qbinary_number_i8",
    title="Quantized add, subtract and multiply of a tensor and a number, 8 bits, by a table of 256 results",
    operator=QConstantBinary,
    implement=implement_table,
    constraints=(quantized_bytes, is_one_number, keeps_shape, results_in_range),
)
LINES = Kernel(
    name="qbinary_lines_i8",
    title="Quantized add, subtract and multiply of a tensor and repeated constants, 8 bits, by a line for each",
    operator=QConstantBinary,
    implement=implement_lines,
    constraints=(quantized_bytes, keeps_shape, results_in_range, constants_repeat, lies_on_lines),
)
KERNELS = (CONSTANT, NUMBER, LINES)
