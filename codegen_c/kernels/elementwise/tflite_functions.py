"""Functions of int8 that TensorFlow Lite Micro computes in fixed point, bit for bit.

Each is a function of the steps from the input's zero point to steps from the output's, int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from codegen_c.kernels.contract import Array
from codegen_c.kernels.shared.requantize import quantization, scale_of
from codegen_c.kernels.shared.requantize_tflite import divide_by_power, fixed_point, multiply, multiply_high
from codegen_c.kernels.softmax.tflite_exponential import (
    exponential,
    one_minus_over_one_plus,
    one_over_one_plus,
    saturated,
)
from codegen_c.operators.kinds import QUnary

# Integer bits of the argument of sigmoid and tanh, and of the results of 8 bits.
_ARGUMENT_BITS = 4
_ONE = (1 << 31) - 1
_ROOT_BITS = 20
"""Bits behind the point of a reciprocal root."""
_HARD_SWISH_BITS = 7
"""Bits by which hard swish widens its input, of 16 bits then."""
_SHORT = np.iinfo(np.int16)

Function = Callable[[Array], Array]


def fixed_point_function(operator: QUnary) -> Function | None:
    """The function of an operator on int8; None for another one, or for scales that TensorFlow Lite Micro refuses."""
    if {operator.inputs[0].dtype, operator.output.dtype} != {"int8"}:
        return None
    scales = scale_of(operator.inputs[0]), scale_of(operator.output)
    functions = [instruction.function for instruction in operator.finish.instructions]
    zero_point = quantization(operator.output).zero_point
    match functions:
        case ["sigmoid"] if (scales[1], zero_point) == (1 / 256, -128) and _argument_shift(scales[0]) >= 0:
            return lambda steps: _by_sides(steps, scales[0], _sigmoid)
        case ["tanh"] if (scales[1], zero_point) == (1 / 128, 0) and _argument_shift(scales[0]) >= 0:
            return lambda steps: _by_sides(steps, scales[0], _tanh)
        case ["abs"]:
            return lambda steps: _abs(steps, *scales)
        case ["rsqrt"]:
            return lambda steps: _reciprocal_root(steps, *scales)
        case _:
            pass
    if _is_hard_swish(operator) and scales[0] < 128 * scales[1]:
        return lambda steps: _hard_swish(steps, *scales)
    return None


def _argument_shift(scale: float) -> int:
    """Places by which an input is shifted to the left of its argument, a fraction of 31 bits."""
    return math.frexp(scale * (1 << (31 - _ARGUMENT_BITS)))[1]


def _by_sides(steps: Array, scale: float, function: Function) -> Array:
    """A function of arguments in 4 integer bits; beyond 15 the least or the greatest result."""
    factor, shift = scale * (1 << (31 - _ARGUMENT_BITS)), _argument_shift(scale)
    radius = math.floor(((1 << _ARGUMENT_BITS) - 1) * (1 << (31 - _ARGUMENT_BITS)) / (1 << shift))
    within = np.clip(steps, 1 - radius, radius - 1) if radius > 0 else np.zeros_like(steps)
    result = function(multiply(within, *fixed_point(factor)))
    return np.where(steps <= -radius, -256, np.where(steps >= radius, 255, result))


def _sigmoid(argument: Array) -> Array:
    """256ths of the sigmoid."""
    above = one_over_one_plus(exponential(-np.abs(argument), _ARGUMENT_BITS))
    result = np.where(argument > 0, above, _ONE - above)
    return divide_by_power(np.where(argument == 0, 1 << 30, result), 31 - 8)


def _tanh(argument: Array) -> Array:
    """128ths of the hyperbolic tangent."""
    above = one_minus_over_one_plus(exponential(-np.abs(argument), _ARGUMENT_BITS + 1))
    result = np.where(argument > 0, above, -above)
    return divide_by_power(np.where(argument == 0, 0, result), 31 - 7)


def _abs(steps: Array, source: float, output: float) -> Array:
    if source == output:
        return np.abs(steps)
    return multiply(np.abs(steps), *fixed_point(source / output))


def _reciprocal_root(steps: Array, source: float, output: float) -> Array:
    """Steps of 1 / sqrt(x); of 0 and below the greatest."""
    real = 1.0 / float(np.sqrt(np.float32(source)) * np.float32(output))
    mantissa, shift = fixed_point(real)
    roots = np.array([_root(max(int(step), 1)) for step in steps.reshape(-1)]).reshape(steps.shape)
    return np.where(steps <= 0, 255, multiply(roots, mantissa, shift + _ROOT_BITS))


def _root(number: int) -> int:
    """2^20 / sqrt(number): five steps of Newton's method on a number brought to 2^27 to 2^29."""
    one = np.array(1, np.int64)
    if number == 1:
        return int(multiply(one, _ONE, 31 - _ROOT_BITS))
    pairs = (31 - number.bit_length()) // 2 - 1
    half, x = divide_by_power(one * (number << (2 * pairs)) >> 1, one), one << 28
    for _ in range(5):
        cube = saturated(multiply_high(multiply_high(x, x), x) << 6)
        x = saturated((multiply_high(x, 3 << 27) - multiply_high(half, cube)) << 3)
    inverse, shift = multiply_high(x, round(2**31 * math.sqrt(0.5))), 11 - pairs
    return int(multiply(one, inverse << max(-shift, 0), 31 - _ROOT_BITS + max(shift, 0)))


def _is_hard_swish(operator: QUnary) -> bool:
    """True for x min(max(x + 3, 0), 6) / 6, in whatever order."""
    functions = [instruction.function for instruction in operator.finish.instructions]
    if not 4 <= len(functions) <= 6 or {"maximum", "minimum", "multiply"} - {*functions}:
        return False
    x = np.linspace(-8, 8, 257, dtype=np.float32)
    expected = x * np.clip(x + 3, 0, 6) / 6
    return bool(np.allclose(operator.finish.run(x, [x]), expected, rtol=1e-5, atol=1e-6))


def _hard_swish(steps: Array, source: float, output: float) -> Array:
    """Products of numbers of 16 bits: the input, and the part of it that is left, 0 to 2^15."""
    fine = np.float32(1 / 128) * np.float32(source)
    factor, shift = _short_factor(float(fine / np.float32(output)))
    part_factor, part_shift = _short_factor(float(fine / np.float32(3 / 32768)))
    wide = steps << _HARD_SWISH_BITS
    part = _short(wide << max(part_shift - 1, 0)) if part_shift > 0 else wide
    part = _high_half(part, part_factor)
    part = _short(part << 1) if part_shift > 0 else divide_by_power(part, -part_shift)
    part = (part + (1 << 15)) >> 1
    product = part * _high_half(wide, factor)
    toward_zero = np.sign(product) * (np.abs(product) >> 15)
    return divide_by_power(toward_zero, -shift)


def _short_factor(factor: float) -> tuple[int, int]:
    """(mantissa of 15 bits, exponent) of a factor."""
    mantissa, shift = fixed_point(factor)
    short = _SHORT.max if mantissa >= _ONE - (1 << 15) else (mantissa + (1 << 15)) >> 16
    return int(short), 31 - shift


def _high_half(a: Array, b: int) -> Array:
    """Upper half of the doubled product of 16 bits, rounded to nearest, halves away from zero."""
    product = a * b
    rounded = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.sign(rounded) * (np.abs(rounded) >> 15)


def _short(value: Array) -> Array:
    return np.clip(value, _SHORT.min, _SHORT.max)
