"""The exponential and the reciprocal that TensorFlow Lite's softmax is made of, in fixed point, bit for bit.

A number of b integer bits is int32, in units of 2^(b - 31). Operations: gemmlowp, fixedpoint/fixedpoint.h.
"""

from __future__ import annotations

import math

import numpy as np

from codegen_c.kernels.shared.requantize_tflite import divide_by_power, multiply_high

Array = np.ndarray
_ONE = (1 << 31) - 1
# exp(-2^i) for i = -2 to 4, no integer bits.
_FACTORS = [min(round(math.exp(-(2.0**i)) * 2**31), _ONE) for i in range(-2, 5)]
_EIGHTH, _EXP_OF_MINUS_EIGHTH, _THIRD = 1 << 28, round(math.exp(-0.125) * 2**31), round(2**31 / 3)
# Integer bits of the exponential's argument, and of the sum of exponentials.
ARGUMENT_BITS = 5
SUM_BITS = 12


def exponential(argument: Array, argument_bits: int = ARGUMENT_BITS) -> Array:
    """exp of int64 arguments from -32 to 0, of 5 integer bits, or as many as are given; the result has none."""
    fraction_bits = 31 - argument_bits
    quarter = 1 << (fraction_bits - 2)
    within = (argument & (quarter - 1)) - quarter
    result = _near_zero(within << argument_bits)
    rest = within - argument
    for exponent, factor in zip(range(-2, argument_bits), _FACTORS, strict=False):
        result = np.where(rest & (1 << (fraction_bits + exponent)), multiply_high(result, factor), result)
    return np.where(argument == 0, _ONE, result)


def _near_zero(argument: Array) -> Array:
    """exp of arguments from -1/4 to 0, no integer bits: a Taylor series of four terms about -1/8."""
    x = argument + _EIGHTH
    x2 = multiply_high(x, x)
    x3, x4 = multiply_high(x2, x), multiply_high(x2, x2)
    higher = divide_by_power(multiply_high(divide_by_power(x4, 2) + x3, _THIRD) + x2, 1)
    return _EXP_OF_MINUS_EIGHTH + multiply_high(x + higher, _EXP_OF_MINUS_EIGHTH)


def reciprocal(total: Array) -> tuple[Array, Array]:
    """(factor, exponent) with 1 / total = factor / 2^exponent; total above 0, 12 integer bits, the factor none."""
    leading = 31 - np.floor(np.log2(total.astype(np.float64))).astype(np.int64)
    excess = (total << leading) - (1 << 31)
    return one_over_one_plus(excess), SUM_BITS - leading


def one_over_one_plus(x: Array) -> Array:
    """1 / (1 + x) for x from 0 to 1, no integer bits."""
    return saturated(_twice_one_over_one_plus(x) << 1)


def one_minus_over_one_plus(x: Array) -> Array:
    """(1 - x) / (1 + x) for x from 0 to 1, no integer bits."""
    return saturated((_twice_one_over_one_plus(x) - (1 << 29)) << 2)


def _twice_one_over_one_plus(x: Array) -> Array:
    """2 / (1 + x), 2 integer bits: three steps of Newton's method on half the denominator."""
    half = (x + _ONE + 1) >> 1
    guess = round(2**29 * 48 / 17) + multiply_high(half, -round(2**29 * 32 / 17))
    for _ in range(3):
        error = (1 << 29) - multiply_high(half, guess)
        guess = guess + saturated(multiply_high(guess, error) << 2)
    return guess


def saturated(value: Array) -> Array:
    return np.clip(value, -(1 << 31), _ONE)
