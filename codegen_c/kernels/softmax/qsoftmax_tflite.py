"""Kernel for softmax over the last axis as TensorFlow Lite computes it, byte for byte, and its exponential."""

from __future__ import annotations

import math

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes, scale_of
from codegen_c.kernels.shared.requantize_tflite import (
    divide_by_power,
    fixed_point,
    multiply,
    multiply_high,
    rounds_as_tflite,
)
from codegen_c.operators.kinds import QSoftmax

# The exponential and the reciprocal of TensorFlow Lite's softmax, in fixed point, bit for bit.
#
# A number of b integer bits is int32, in units of 2^(b - 31). Operations: gemmlowp, fixedpoint/fixedpoint.h.

Array = np.ndarray
_ONE = (1 << 31) - 1
# exp(-2^i) for i = -2 to 4, no integer bits.
_FACTORS = [min(round(math.exp(-(2.0**i)) * 2**31), _ONE) for i in range(-2, 5)]
_EIGHTH, _EXP_OF_MINUS_EIGHTH, _THIRD = 1 << 28, round(math.exp(-0.125) * 2**31), round(2**31 / 3)
# Integer bits of the exponential's argument, and of the sum of exponentials.
ARGUMENT_BITS = 5
SUM_BITS = 12


def exponential(argument: Array, argument_bits: int = ARGUMENT_BITS) -> Array:
    """Return exp of int64 arguments from -32 to 0, with 5 integer bits by default; the result has none."""
    fraction_bits = 31 - argument_bits
    quarter = 1 << (fraction_bits - 2)
    within = (argument & (quarter - 1)) - quarter
    result = _near_zero(within << argument_bits)
    rest = within - argument
    for exponent, factor in zip(range(-2, argument_bits), _FACTORS, strict=False):
        result = np.where(rest & (1 << (fraction_bits + exponent)), multiply_high(result, factor), result)
    return np.where(argument == 0, _ONE, result)


def _near_zero(argument: Array) -> Array:
    """Return exp of arguments from -1/4 to 0, without integer bits: a Taylor series of four terms about -1/8."""
    x = argument + _EIGHTH
    x2 = multiply_high(x, x)
    x3, x4 = multiply_high(x2, x), multiply_high(x2, x2)
    higher = divide_by_power(multiply_high(divide_by_power(x4, 2) + x3, _THIRD) + x2, 1)
    return _EXP_OF_MINUS_EIGHTH + multiply_high(x + higher, _EXP_OF_MINUS_EIGHTH)


def reciprocal(total: Array) -> tuple[Array, Array]:
    """Return (factor, exponent) with 1 / total = factor / 2^exponent.

    total: above 0, with 12 integer bits; the factor has none.
    """
    leading = 31 - np.floor(np.log2(total.astype(np.float64))).astype(np.int64)
    excess = (total << leading) - (1 << 31)
    return one_over_one_plus(excess), SUM_BITS - leading


def one_over_one_plus(x: Array) -> Array:
    """Return 1 / (1 + x) for x from 0 to 1, without integer bits."""
    return saturated(_twice_one_over_one_plus(x) << 1)


def one_minus_over_one_plus(x: Array) -> Array:
    """Return (1 - x) / (1 + x) for x from 0 to 1, without integer bits."""
    return saturated((_twice_one_over_one_plus(x) - (1 << 29)) << 2)


def _twice_one_over_one_plus(x: Array) -> Array:
    """Return 2 / (1 + x), 2 integer bits: three steps of Newton's method on half the denominator."""
    half = (x + _ONE + 1) >> 1
    guess = round(2**29 * 48 / 17) + multiply_high(half, -round(2**29 * 32 / 17))
    for _ in range(3):
        error = (1 << 29) - multiply_high(half, guess)
        guess = guess + saturated(multiply_high(guess, error) << 2)
    return guess


def saturated(value: Array) -> Array:
    return np.clip(value, -(1 << 31), _ONE)


# Softmax over the last axis as TensorFlow Lite computes it, byte for byte: fixed-point exponentials and division.
#
# int8[..., C] -> int8[..., C], output scale 1/256 and zero point -128, C up to 4095. exp((x - max) * scale) is a table
# by max - x, computed at compile time; values that TensorFlow Lite drops as too small are zero in it.

INCLUDES = (*requantize_tflite.INCLUDES, "tvm_ext_softmax_tflite.h", "tvm_ext_layer.h")
# The largest factor from input steps to units of an argument.
_LARGEST_FACTOR = 2.0**31 - 1
MAX_LENGTH = (1 << SUM_BITS) - 1
# Shift from the product of two numbers without integer bits to 256ths. Beyond 31 bits less than half of 1/256 is left,
# so the result is 0, where TensorFlow Lite's kernels would shift by more bits than a word has.
_TO_256THS, _MOST_BITS = 31 - 8, 31


def reference(operator: QSoftmax, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    x = inputs[0].astype(np.int64)
    exponentials = table(operator).astype(np.int64)[x.max(axis=-1, keepdims=True) - x]
    total = divide_by_power(exponentials, SUM_BITS).sum(axis=-1, keepdims=True)
    factor, exponent = reciprocal(total)
    shift = exponent + _TO_256THS
    product = multiply_high(exponentials, np.where(shift > _MOST_BITS, 0, factor))
    value = divide_by_power(product, np.minimum(shift, _MOST_BITS)) - 128
    return [np.clip(value, -128, 127).astype(np.int8)]


def probabilities_in_256ths(operator: QSoftmax, target: Target) -> bool:
    """input and output must be int8, the output's scale 1/256 and its zero point -128"""
    found = quantization(operator.output)
    types = {operator.inputs[0].dtype, operator.output.dtype}
    return types == {"int8"} and scale_of(operator.output) == 1 / 256 and found.zero_point == -128


def rows_are_short(operator: QSoftmax, target: Target) -> bool:
    """the last axis must have 1 to 4095 elements"""
    return 1 <= operator.inputs[0].shape[-1] <= MAX_LENGTH


def scale_is_large_enough(operator: QSoftmax, target: Target) -> bool:
    """one step of the input must be at least 2^-26"""
    return scale_of(operator.inputs[0]) * (1 << (31 - ARGUMENT_BITS)) >= 1


def table(operator: QSoftmax) -> np.ndarray:
    """Return exp(-d * input scale) for d = 0 to 255, times 2^31: int32[256]."""
    return exponentials_of(scale_of(operator.inputs[0]))


def exponentials_of(scale: float) -> np.ndarray:
    """Return exp(-d * scale) for d = 0 to 255, times 2^31: int32[256]. scale: at least 2^-26."""
    factor = min(scale * (1 << (31 - ARGUMENT_BITS)), _LARGEST_FACTOR)
    mantissa, shift = fixed_point(factor)
    left = 31 - shift
    largest = math.floor(((1 << ARGUMENT_BITS) - 1) * (1 << (31 - ARGUMENT_BITS)) / (1 << left))
    steps = np.arange(256, dtype=np.int64)
    arguments = multiply(-np.minimum(steps, largest), mantissa, shift)
    return np.where(steps <= largest, exponential(arguments), 0).astype(np.int32)


def implement(operator: QSoftmax, target: Target, stored: StoredRows) -> Implementation:
    length = operator.output.shape[-1]
    rows = operator.output.num_elements // length
    shape = [f"const int32_t count = {rows};", f"const int32_t length = {length};"]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES["int8"], role="input"),
                Parameter(name="output", ctype=C_TYPES["int8"], role="output"),
                Parameter(name="exponential", ctype="int32_t", role="constant"),
            ),
            body="\n".join([*shape, "tvm_ext_softmax_tflite(input, output, exponential, count, length);"]),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("exponential", table(operator)),),
        instructions=operator.output.num_elements * 40 + rows * 150,
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )


KERNEL = Kernel(
    name="qsoftmax_tflite_i8",
    title="Softmax over the last axis with the bytes of TensorFlow Lite",
    operator=QSoftmax,
    implement=implement,
    constraints=(rounds_as_tflite, quantized_bytes, probabilities_in_256ths, rows_are_short, scale_is_large_enough),
)
