"""Kernel for functions of one 16-bit quantized tensor that are linear on either side of zero."""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise.qbinary import rows_of
from codegen_c.kernels.shared.bit_widths import WORDS
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.requantize import (
    BYTES,
    Requantize,
    factor_members,
    is_quantized_integer,
    largest_distance,
    quantization,
    results_fit,
    scale_of,
)
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QUnary
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram

# Functions of one quantized tensor that are linear on either side of zero: one factor for each side.

_ELEMENT, _ZERO = Operand(kind="value"), Operand(kind="number", number=0.0)
_POSITIVE = Instruction(function="maximum", operands=(_ELEMENT, _ZERO))
_NEGATIVE = Instruction(function="minimum", operands=(_ELEMENT, _ZERO))


def linear_factors(operator: QUnary) -> tuple[float, float] | None:
    """Return the output steps of one input step above and below zero; None for functions that are not linear there."""
    program, source, output = operator.finish, scale_of(operator.inputs[0]), scale_of(operator.output)
    if not program.instructions:
        return source / output, source / output
    factor = _scaling(program)
    if factor is not None and operator.rounding == "onnx":  # TensorFlow Lite rounds this factor to 8 bits first
        return source * factor / output, source * factor / output
    slope = 0.0 if program.instructions == (_POSITIVE,) else _slope_below_zero(program)
    if slope is None:
        return None
    return source / output, source * float(np.float32(slope)) / output


def _scaling(program: ScalarProgram) -> float | None:
    """Return the non-negative number by which a program multiplies its element; None for other programs."""
    match program.instructions:
        case (Instruction(function="multiply", operands=(first, second)),):
            numbers = [operand.number for operand in (first, second) if operand.kind == "number"]
            is_factor = _ELEMENT in (first, second) and len(numbers) == 1 and numbers[0] >= 0
            return float(np.float32(numbers[0])) if is_factor else None
        case _:
            return None


def _slope_below_zero(program: ScalarProgram) -> float | None:
    """Return the slope of a leaky ReLU if it is not negative; None for other programs."""
    match program.instructions:
        case (first, second, Instruction(function="multiply", operands=(_, factor)), Instruction(function="add")):
            is_leaky = (first, second, factor.kind) == (_POSITIVE, _NEGATIVE, "number")
            return factor.number if is_leaky and factor.number >= 0 else None
        case _:
            return None


# Functions of a quantized tensor of 16 bits, or to 16 bits, that are linear on either side of zero, integers only.
#
# Integers of 8 or 16 bits[...] -> integers of 8 or 16 bits[...]: another scale, ReLU, leaky ReLU, and in rounding
# "onnx" a factor that is not negative. The distance from the zero point is multiplied by the factor of its side, with
# either rounding. For 8 bits on both sides qunary.py uses a table.

LAYER = "tvm_ext_qlinear_layer"
INCLUDES = ("tvm_ext_qlinear.h", "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h")


def reference(operator: QUnary, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    steps = inputs[0].astype(np.int64) - quantization(operator.inputs[0]).zero_point
    above, below = (side.run(steps) for side in _sides(operator))
    return [np.where(steps < 0, below, above)]


def has_sixteen_bits(operator: QUnary, target: Target) -> bool:
    """input or output must have 16 bits, the other 8 or 16, each with one scale that is finite and above zero"""
    tensors = (operator.inputs[0], operator.output)
    is_integer = all(is_quantized_integer(tensor, (*BYTES, *WORDS)) for tensor in tensors)
    return is_integer and any(tensor.dtype in WORDS for tensor in tensors)


def is_linear(operator: QUnary, target: Target) -> bool:
    """the function must be linear on either side of zero: another scale, a factor, ReLU or leaky ReLU"""
    return linear_factors(operator) is not None


def results_in_range(operator: QUnary, target: Target) -> bool:
    """no result may reach 2^30 steps of the output before it is clamped"""
    largest = np.array(largest_distance(operator.inputs[0]))
    return results_fit(-largest, largest, np.array(_factors(operator)))


def _factors(operator: QUnary) -> tuple[float, float]:
    factors = linear_factors(operator)
    assert factors is not None, "is_linear was asked before"
    return factors


def _sides(operator: QUnary) -> list[Requantize]:
    """Return the requantization above and below zero."""
    limits = np.iinfo(operator.output.dtype)
    return [
        Requantize.of(
            np.array([factor]), output=operator.output, low=int(limits.min), high=int(limits.max),
            rounding=operator.rounding,
        )
        for factor in _factors(operator)
    ]  # fmt: skip


def implement(operator: QUnary, target: Target, stored: StoredRows) -> Implementation:
    rows = rows_of(operator.output, num_inputs=1)
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_qlinear({layer}, input, output, {'row_begin, row_end' if rows else '0, 1'});"
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body="\n".join([*rings, call]),
            helpers=_shapes(operator, stored),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=operator.output.num_elements * 16,
        spatial=rows,
        in_place=(0,) if _keeps_size(operator) else (),
        exact=True,
        pitched=True,
        row_pitched=rows is not None,
    )


def _keeps_size(operator: QUnary) -> bool:
    """Return True if an element of the output has the size of an element of the input."""
    return np.dtype(operator.inputs[0].dtype).itemsize == np.dtype(operator.output.dtype).itemsize


def _shapes(operator: QUnary, stored: StoredRows) -> str:
    """Return the layer's shapes for tvm_ext_qlinear.h."""
    above, below = (factor_members(int(side.mantissa[0]), int(side.shift[0])) for side in _sides(operator))
    limits = np.iinfo(operator.output.dtype)
    members: dict[str, Value] = {
        "input": image(one_image(operator.inputs[0])),
        "output": image(one_image(operator.output), stored=stored),
        "rounds_twice": operator.rounding == "tflite",
        "above": above, "below": below, "low": int(limits.min), "high": int(limits.max),
    }  # fmt: skip
    return shapes(LAYER, members)


KERNEL = Kernel(
    name="qlinear_i16",
    title="Function of one 16-bit quantized tensor that is linear on either side of zero",
    operator=QUnary,
    implement=implement,
    constraints=(has_sixteen_bits, is_linear, results_in_range),
)
