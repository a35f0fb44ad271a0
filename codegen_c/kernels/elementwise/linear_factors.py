"""Functions of one quantized tensor that are linear on either side of zero: one factor for each side."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.shared.requantize import scale_of
from codegen_c.operators.kinds import QUnary
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram

_ELEMENT, _ZERO = Operand(kind="value"), Operand(kind="number", number=0.0)
_POSITIVE = Instruction(function="maximum", operands=(_ELEMENT, _ZERO))
_NEGATIVE = Instruction(function="minimum", operands=(_ELEMENT, _ZERO))


def linear_factors(operator: QUnary) -> tuple[float, float] | None:
    """Output steps of one input step above and below zero; None for a function that is not linear there."""
    program, source, output = operator.finish, scale_of(operator.inputs[0]), scale_of(operator.output)
    if not program.instructions:
        return source / output, source / output
    factor = _scaling(program)
    if factor is not None and operator.rounding == "onnx":  # TensorFlow Lite rounds such a factor to 8 bits first
        return source * factor / output, source * factor / output
    slope = 0.0 if program.instructions == (_POSITIVE,) else _slope_below_zero(program)
    if slope is None:
        return None
    return source / output, source * float(np.float32(slope)) / output


def _scaling(program: ScalarProgram) -> float | None:
    """The number, not negative, by which a program multiplies its element and does nothing else; None for others."""
    match program.instructions:
        case (Instruction(function="multiply", operands=(first, second)),):
            numbers = [operand.number for operand in (first, second) if operand.kind == "number"]
            is_factor = _ELEMENT in (first, second) and len(numbers) == 1 and numbers[0] >= 0
            return float(np.float32(numbers[0])) if is_factor else None
        case _:
            return None


def _slope_below_zero(program: ScalarProgram) -> float | None:
    """The slope of a leaky relu, not negative; None for other programs."""
    match program.instructions:
        case (first, second, Instruction(function="multiply", operands=(_, factor)), Instruction(function="add")):
            is_leaky = (first, second, factor.kind) == (_POSITIVE, _NEGATIVE, "number")
            return factor.number if is_leaky and factor.number >= 0 else None
        case _:
            return None
