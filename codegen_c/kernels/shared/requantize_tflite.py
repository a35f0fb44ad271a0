"""TensorFlow Lite's fixed-point arithmetic in numpy, as TensorFlow Lite Micro computes it: two roundings.

A sum times a factor of mantissa / 2^shift is (1) the upper half of the doubled 64-bit product, halves rounded up, then
(2) divided by the remaining power of two, halves rounded away from zero. tvm_ext_requantize_tflite.h does the same in
C. Operations and names of the steps: gemmlowp, fixedpoint/fixedpoint.h.
"""

from __future__ import annotations

import math

import numpy as np

from codegen_c.kernels.contract import Array, Target
from codegen_c.operators.kinds import Operator

INCLUDES = ("tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h")
# Bits of a mantissa; factors below 2^-32 are zero.
_BITS = 31
_SMALLEST_EXPONENT = -31
_DROPPED_BITS = 16
"""Bits of a mantissa that are dropped for sums of 64 bits."""


def rounds_as_tflite(operator: Operator, target: Target) -> bool:
    """the kernel computes with TensorFlow Lite's two roundings only"""
    return getattr(operator, "rounding", "onnx") == "tflite"


def fixed_point(factor: float) -> tuple[int, int]:
    """Return (mantissa, shift) with mantissa / 2^shift nearest to a factor below 2^31, halves up; shift 0 to 62."""
    fraction, exponent = math.frexp(factor)
    mantissa = math.floor(fraction * (1 << _BITS) + 0.5)
    if mantissa == 1 << _BITS:
        mantissa, exponent = mantissa >> 1, exponent + 1
    return (mantissa, _BITS - exponent) if mantissa and exponent >= _SMALLEST_EXPONENT else (0, _BITS)


def fixed_point_wide(factor: float) -> tuple[int, int]:
    """Return (mantissa, shift) for sums of 64 bits: the mantissa of `fixed_point` in 15 bits, halves up, below 2^15."""
    mantissa, shift = fixed_point(factor)
    reduced = min((mantissa + (1 << (_DROPPED_BITS - 1))) >> _DROPPED_BITS, (1 << (_BITS - _DROPPED_BITS)) - 1)
    return reduced, shift - _DROPPED_BITS


def multiply_wide(value: Array, mantissa: Array | int, shift: Array | int) -> Array:
    """Return int64 value * mantissa / 2^shift, rounded once, halves up.

    The product must stay below 2^62. shift: at least 1.
    """
    shift = np.asarray(shift, np.int64)
    return (value * np.asarray(mantissa, np.int64) + (np.int64(1) << (shift - 1))) >> shift


def fixed_point_of_mean(factor: float, count: int) -> tuple[int, int]:
    """Return (mantissa, shift) for the mean of `count` elements: the factor's mantissa divided by the count, downwards.

    The mantissa is first extended by the bits of the count, as far as a product leaves room.
    """
    mantissa, shift = fixed_point(factor)
    more = min(count.bit_length() - 1, 32, 2 * _BITS - shift)
    return (mantissa << more) // count, shift + more


def multiply(value: Array, mantissa: Array | int, shift: Array | int) -> Array:
    """Return int64 value * mantissa / 2^shift with both roundings; |value| times the factor must stay below 2^30."""
    left, right = np.maximum(_BITS - np.asarray(shift, np.int64), 0), np.maximum(np.asarray(shift, np.int64) - _BITS, 0)
    return divide_by_power(multiply_high(value << left, mantissa), right)


def multiply_high(a: Array, b: Array | int) -> Array:
    """Return the upper 32 bits of 2 * a * b for int32 a and b that are not both the smallest number; halves up."""
    return (a * np.asarray(b, np.int64) + (1 << (_BITS - 1))) >> _BITS


def divide_by_power(value: Array, exponent: Array | int) -> Array:
    """Return value / 2^exponent, halves away from zero."""
    mask = (np.int64(1) << np.asarray(exponent, np.int64)) - 1
    return (value >> exponent) + ((value & mask) > (mask >> 1) + (value < 0))


def divide(total: Array, count: Array) -> Array:
    """Return total / count, rounded to nearest, halves away from zero: averages of integers."""
    half = count // 2
    return np.where(total > 0, (total + half) // count, -((half - total) // count))
