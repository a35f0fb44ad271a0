"""Tables of one-input functions as TensorFlow Lite Micro computes them.

Exact, byte for byte, for what is linear on either side of zero (requantization, relu, leaky relu): one factor each,
with TensorFlow Lite's roundings. Other functions are rounded from single precision, halves away from zero, which is
what TensorFlow Lite's fixed-point versions approximate: at most one step from its bytes.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Array
from codegen_c.kernels.shared.requantize import quantization, scale_of
from codegen_c.kernels.shared.requantize_tflite import fixed_point, multiply
from codegen_c.operators.kinds import QUnary
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram

_ELEMENT, _ZERO = Operand(kind="value"), Operand(kind="number", number=0.0)
_POSITIVE = Instruction(function="maximum", operands=(_ELEMENT, _ZERO))
_NEGATIVE = Instruction(function="minimum", operands=(_ELEMENT, _ZERO))


def tflite_table(operator: QUnary) -> Array:
    """Results by the input's bit pattern (0 to 255), [256] of the output's type."""
    source, output = operator.inputs[0], operator.output
    steps = np.arange(256, dtype=np.uint8).view(source.dtype).astype(np.int64) - quantization(source).zero_point
    factors = _factors(operator)
    if factors is None:
        element = steps.astype(np.float32) * np.float32(scale_of(source))
        value = operator.finish.run(element, [element]) / np.float32(scale_of(output))
        result = np.copysign(np.floor(np.abs(np.nan_to_num(value, nan=0.0)) + 0.5), value)
    else:
        above, below = (multiply(steps, *fixed_point(factor)) for factor in factors)
        result = np.where(steps >= 0, above, below)
    limits = np.iinfo(output.dtype)
    return np.clip(result + quantization(output).zero_point, limits.min, limits.max).astype(output.dtype)


def _factors(operator: QUnary) -> tuple[float, float] | None:
    """Output steps of one input step above and below zero; None for a function that is not linear there."""
    program, source, output = operator.finish, operator.inputs[0], operator.output
    ratio = scale_of(source) / scale_of(output)
    if not program.instructions:
        return ratio, ratio
    if program.instructions == (_POSITIVE,):
        return ratio, 0.0
    slope = _slope_below_zero(program)
    if slope is None:
        return None
    # Here TensorFlow Lite works its factors out in single precision.
    scales = np.float32(scale_of(source)), np.float32(scale_of(output))
    return float(scales[0] / scales[1]), float(scales[0] * np.float32(slope) / scales[1])


def _slope_below_zero(program: ScalarProgram) -> float | None:
    """The slope of a leaky relu, at most 1 and not negative; None for other programs."""
    match program.instructions:
        case (first, second, Instruction(function="multiply", operands=(_, factor)), Instruction(function="add")):
            is_leaky = (first, second, factor.kind) == (_POSITIVE, _NEGATIVE, "number")
            return factor.number if is_leaky and factor.number >= 0 else None
        case _:
            return None
