"""Kernel for any function of one 8-bit quantized tensor: a table of 256 results, also TensorFlow Lite's own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import Array, CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.elementwise.qbinary import rows_of
from codegen_c.kernels.elementwise.qlinear import linear_factors
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes, results_fit, scale_of
from codegen_c.kernels.shared.requantize_tflite import divide_by_power, fixed_point, multiply, multiply_high
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.kernels.softmax.qsoftmax_tflite import exponential, one_minus_over_one_plus, one_over_one_plus, saturated
from codegen_c.operators.kinds import Operator, QUnary, TensorType

# Functions of int8 that TensorFlow Lite Micro computes in fixed point, bit for bit.
#
# Each maps steps from the input's zero point to steps from the output's, int64.

# Integer bits of the arguments of sigmoid and tanh, whose results have 8 bits.
_ARGUMENT_BITS = 4
_ONE = (1 << 31) - 1
_ROOT_BITS = 20
"""Fractional bits of a reciprocal root."""
_HARD_SWISH_BITS = 7
"""Bits by which hard swish widens its input, which has 16 bits then."""
_SHORT = np.iinfo(np.int16)

Function = Callable[[Array], Array]


def fixed_point_function(operator: QUnary) -> Function | None:
    """Return the fixed-point function of an int8 operator, or of hard swish on uint8.

    Returns None for other operators, and for scales that TensorFlow Lite Micro rejects.
    """
    types = {operator.inputs[0].dtype, operator.output.dtype}
    scales = scale_of(operator.inputs[0]), scale_of(operator.output)
    if types in ({"int8"}, {"uint8"}) and _is_hard_swish(operator) and scales[0] < 128 * scales[1]:
        return lambda steps: _hard_swish(steps, *scales)
    if types != {"int8"}:
        return None
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
            return None


def _argument_shift(scale: float) -> int:
    """Return the left shift of an input that makes it an argument, a fraction of 31 bits."""
    return math.frexp(scale * (1 << (31 - _ARGUMENT_BITS)))[1]


def _by_sides(steps: Array, scale: float, function: Function) -> Array:
    """Return a function of arguments in 4 integer bits; beyond 15 it is the least or the greatest result."""
    factor, shift = scale * (1 << (31 - _ARGUMENT_BITS)), _argument_shift(scale)
    radius = math.floor(((1 << _ARGUMENT_BITS) - 1) * (1 << (31 - _ARGUMENT_BITS)) / (1 << shift))
    within = np.clip(steps, 1 - radius, radius - 1) if radius > 0 else np.zeros_like(steps)
    result = function(multiply(within, *fixed_point(factor)))
    return np.where(steps <= -radius, -256, np.where(steps >= radius, 255, result))


def _sigmoid(argument: Array) -> Array:
    """Return the sigmoid in units of 1/256."""
    above = one_over_one_plus(exponential(-np.abs(argument), _ARGUMENT_BITS))
    result = np.where(argument > 0, above, _ONE - above)
    return divide_by_power(np.where(argument == 0, 1 << 30, result), 31 - 8)


def _tanh(argument: Array) -> Array:
    """Return the hyperbolic tangent in units of 1/128."""
    above = one_minus_over_one_plus(exponential(-np.abs(argument), _ARGUMENT_BITS + 1))
    result = np.where(argument > 0, above, -above)
    return divide_by_power(np.where(argument == 0, 0, result), 31 - 7)


def _abs(steps: Array, source: float, output: float) -> Array:
    if source == output:
        return np.abs(steps)
    return multiply(np.abs(steps), *fixed_point(source / output))


def _reciprocal_root(steps: Array, source: float, output: float) -> Array:
    """Return 1 / sqrt(x) in output steps; for 0 and below the greatest result."""
    real = 1.0 / float(np.sqrt(np.float32(source)) * np.float32(output))
    mantissa, shift = fixed_point(real)
    roots = np.array([_root(max(int(step), 1)) for step in steps.reshape(-1)]).reshape(steps.shape)
    return np.where(steps <= 0, 255, multiply(roots, mantissa, shift + _ROOT_BITS))


def _root(number: int) -> int:
    """Return 2^20 / sqrt(number), by five steps of Newton's method on a number scaled to 2^27 to 2^29."""
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
    """Return True for x min(max(x + 3, 0), 6) / 6, in any order of operators."""
    functions = [instruction.function for instruction in operator.finish.instructions]
    if not 4 <= len(functions) <= 6 or {"maximum", "minimum", "multiply"} - {*functions}:
        return False
    x = np.linspace(-8, 8, 257, dtype=np.float32)
    expected = x * np.clip(x + 3, 0, 6) / 6
    return bool(np.allclose(operator.finish.run(x, [x]), expected, rtol=1e-5, atol=1e-6))


def _hard_swish(steps: Array, source: float, output: float) -> Array:
    """Return hard swish as products of 16-bit numbers: the input, and its factor from 0 to 2^15."""
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
    """Return (mantissa of 15 bits, exponent) of a factor."""
    mantissa, shift = fixed_point(factor)
    short = _SHORT.max if mantissa >= _ONE - (1 << 15) else (mantissa + (1 << 15)) >> 16
    return int(short), 31 - shift


def _high_half(a: Array, b: int) -> Array:
    """Return the upper half of the doubled product of 16 bits, rounded to nearest, halves away from zero."""
    product = a * b
    rounded = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.sign(rounded) * (np.abs(rounded) >> 15)


def _short(value: Array) -> Array:
    return np.clip(value, _SHORT.min, _SHORT.max)


# Tables of one-input functions as TensorFlow Lite Micro computes them.
#
# They are exact, byte for byte, for functions that are linear on either side of zero (requantization, ReLU, leaky
# ReLU): one factor each, with TensorFlow Lite's roundings; and for functions that it computes in fixed point (above).
# Other functions are rounded from single precision, halves away from zero, as TensorFlow Lite fills its own tables.


def tflite_table(operator: QUnary) -> Array:
    """Return the results by the input's bit pattern (0 to 255), [256] of the output's type."""
    source, output = operator.inputs[0], operator.output
    steps = np.arange(256, dtype=np.uint8).view(source.dtype).astype(np.int64) - quantization(source).zero_point
    factors, found = linear_factors(operator), fixed_point_function(operator)
    if operator.rounding == "litert" and factors is not None:
        result = _litert_linear(steps, factors)
    elif found is not None:
        result = found(steps)
    elif factors is None:
        element = steps.astype(np.float32) * np.float32(scale_of(source))
        value = operator.finish.run(element, [element]) * (np.float32(1) / np.float32(scale_of(output)))
        result = np.copysign(np.floor(np.abs(np.nan_to_num(value, nan=0.0)) + 0.5), value)
    else:
        above, below = (multiply(steps, *fixed_point(factor)) for factor in factors)
        result = np.where(steps >= 0, above, below)
    limits = np.iinfo(output.dtype)
    return np.clip(result + quantization(output).zero_point, limits.min, limits.max).astype(output.dtype)


def _litert_linear(steps: Array, factors: tuple[float, float]) -> Array:
    """Return steps times the factor of their side of zero, with XNNPACK's factors of 8 fractional bits, halves up.

    `xnn_init_qs8_lrelu_scalar_params` and `xnn_init_qs8_cvt_scalar_params`.
    """
    above, below = (int(np.rint(np.float32(-256) * np.float32(factor))) for factor in factors)
    return (-steps * np.where(steps > 0, above, below) + 128) >> 8


# Any function of one quantized tensor, element by element: a table of 256 results computed at compile time.
#
# int8 or uint8[...] -> int8 or uint8[...]. A result is the float32 function of the dequantized element, divided by the
# output scale, rounded "onnx" (halves to even) and clamped to the type; NaN becomes the least integer. `tflite_table`
# defines rounding "tflite" and "litert".

LAYER = "tvm_ext_qunary_layer"
PACKED_INSTRUCTIONS, SINGLE_INSTRUCTIONS = 3.7, 5
"""Modelled instructions of an element: two loads, and the packing of eight results by GCC 12 for a Cortex-M4, 30
instructions in all; or a store for each element in rows of at most `MOST_SINGLE` elements."""
MOST_SINGLE = 32


def reference(operator: QUnary, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    return [np.take(table(operator), inputs[0].view(np.uint8))]


def depends_on_element_alone(operator: QUnary, target: Target) -> bool:
    """the function must depend on the element alone, not on a second tensor or on the channel"""
    operands = [o for instruction in operator.finish.instructions for o in instruction.operands]
    return all(o.kind in ("value", "number") or (o.kind == "input" and o.index == 0) for o in operands)


def steps_fit(operator: QUnary, target: Target) -> bool:
    """one step of the input must be less than 2^22 steps of the output"""
    ratio = scale_of(operator.inputs[0]) / scale_of(operator.output)
    return operator.rounding == "onnx" or results_fit(np.array(-255), np.array(255), np.array(ratio))


def table(operator: QUnary) -> np.ndarray:
    """Return the results by the input's bit pattern (0 to 255), [256] of the output's type."""
    if operator.rounding != "onnx":
        return tflite_table(operator)
    source, output = operator.inputs[0], operator.output
    patterns = np.arange(256, dtype=np.uint8).view(source.dtype).astype(np.int32)
    element = (patterns - quantization(source).zero_point).astype(np.float32) * np.float32(scale_of(source))
    value = operator.finish.run(element, [element])
    with np.errstate(over="ignore"):
        steps = np.rint(value / np.float32(scale_of(output)))
    limits = np.iinfo(output.dtype)
    shifted = np.nan_to_num(steps, nan=-np.inf) + np.float32(quantization(output).zero_point)
    return np.clip(shifted, limits.min, limits.max).astype(output.dtype)


def implement(operator: QUnary, target: Target, stored: StoredRows) -> Implementation:
    return by_table(KERNEL.name, operator, table(operator), stored, lambda inputs: reference(operator, inputs))


def by_table(
    kernel: str,
    operator: Operator,
    results: Array,
    stored: StoredRows,
    reference: Callable[[list[Array]], list[Array]],
) -> Implementation:
    """Return the kernel of a function of one element, given its results by the input's bit pattern (0 to 255)."""
    source, output = C_TYPES[operator.inputs[0].dtype], C_TYPES[operator.output.dtype]
    operands = (
        Parameter(name="input", ctype=source, role="input"),
        Parameter(name="output", ctype=output, role="output"),
    )
    rows = rows_of(operator.output, num_inputs=1)
    return Implementation(
        kernel=kernel,
        function=CFunction(
            parameters=(
                *operands,
                Parameter(name="table", ctype=output, role="constant"),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body=_body(stored, by_rows=rows is not None),
            helpers=_shapes(operator, stored),
            includes=("tvm_ext_qunary.h", "tvm_ext_layer.h"),
        ),
        reference=reference,
        constants=(("table", results),),
        instructions=_instructions(one_image(operator.output)),
        passes=Passes(constants=operator.output.num_elements / 256),
        spatial=rows,
        in_place=(0,),
        exact=True,
        pitched=True,
        row_pitched=rows is not None,
    )


def _instructions(output: TensorType) -> int:
    """Return the modelled instructions for an output with the shape of an image."""
    length = output.shape[2] * output.shape[3]
    if output.num_elements == 1:
        return 4
    each = SINGLE_INSTRUCTIONS if length <= MOST_SINGLE else PACKED_INSTRUCTIONS
    return round(each * output.num_elements) + 5 * (output.num_elements // length)


def _shapes(operator: Operator, stored: StoredRows) -> str:
    """Return the layer's shapes for tvm_ext_qunary.h."""
    output = image(one_image(operator.output), stored=stored)
    return shapes(LAYER, {"input": image(one_image(operator.inputs[0])), "output": output})


def _body(stored: StoredRows, *, by_rows: bool) -> str:
    """Return a call of the loops of tvm_ext_qunary.h, over the rows of a call or over all rows."""
    rings, layer = with_rings(LAYER, stored)
    rows = "row_begin, row_end" if by_rows else "0, 1"
    return "\n".join([*rings, f"tvm_ext_qunary({layer}, input, output, table, {rows});"])


KERNEL = Kernel(
    name="qunary_i8",
    title="Function of one 8-bit quantized tensor, by a table of 256 results",
    operator=QUnary,
    implement=implement,
    constraints=(quantized_bytes, depends_on_element_alone, steps_fit),
)
