"""Kernels for quantized add, subtract and multiply, integers only, of 8 or 16 bits: of one shape, or broadcast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, block, loop, structure, times
from codegen_c.kernels.contract import (
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Spatial,
    StoredRows,
    Target,
)
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.bit_widths import quantized_words, wide_kernel
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.requantize import (
    MAX_SHIFT,
    Requantize,
    factor_members,
    fixed_point,
    largest_distance,
    litert_factor,
    quantization,
    quantized_bytes,
    results_fit,
    round_shift,
    scale_of,
)
from codegen_c.kernels.shared.requantize_litert import sum_factors
from codegen_c.kernels.shared.window import ROW_PARAMETERS, offset, row_by_row, slot
from codegen_c.operators.kinds import Extreme, QBinary, QDivide, TensorType
from tvm_ext.core.row_access import RowAccess

# add, subtract and multiply of two quantized tensors of one shape, integers only, element by element.
#
# int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]; 16-bit elements use the same loops. Products are exact
# in int32, then rounded either way. Sums and differences share one shift in rounding "onnx", so that they are rounded
# once; "litert" has the same with XNNPACK's factors of 21 bits, halves up; in "tflite" both inputs are scaled to 2^-20
# of twice the larger scale (2^-15 for 16 bits), added there, and scaled to the output.

LAYER = "tvm_ext_qbinary_layer"
INCLUDES = (
    "tvm_ext_qbinary.h", "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_litert.h",
    "tvm_ext_requantize_tflite.h",
)  # fmt: skip
# Modelled instructions of an element including the innermost loop, in the disassembly for a Cortex-M4, by rounding.
PRODUCT_INSTRUCTIONS = {"onnx": 18, "tflite": 23, "litert": 21}
SUM_INSTRUCTIONS = {"onnx": 22, "tflite": 39, "litert": 20}
NEVER_NEGATIVE_INSTRUCTIONS = 17
"""Modelled instructions of an element of TensorFlow Lite's product if no product is below zero."""
# Fractional bits of TensorFlow Lite's sum, in units of twice the larger input scale, by bytes of the output.
TFLITE_SHIFTS = {1: 20, 2: 15}


def reference(operator: QBinary, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    a, b = (x.astype(np.int64) for x in inputs)
    zero_a, zero_b = (quantization(t).zero_point for t in operator.inputs)
    if operator.function == "multiply":
        return [product(operator).run((a - zero_a) * (b - zero_b))]
    if operator.rounding == "tflite":
        value = _tflite_sum(operator, a - zero_a, b - zero_b)
    else:
        factor_a, factor_b, shift = common_shift(operator)
        total = (a - zero_a) * factor_a + (b - zero_b) * factor_b
        is_up = operator.rounding == "litert"
        value = (total + (1 << (shift - 1))) >> shift if is_up else round_shift(total, shift)
    clamped = np.clip(value + quantization(operator.output).zero_point, operator.low, operator.high)
    return [np.asarray(clamped).astype(operator.output.dtype)]


def element_instructions(operator: QBinary) -> int:
    """Return the modelled instructions of an element in plain C."""
    lowest = (quantization(tensor).zero_point == np.iinfo(tensor.dtype).min for tensor in operator.inputs)
    if operator.function == "multiply" and operator.rounding == "tflite" and all(lowest):
        return NEVER_NEGATIVE_INSTRUCTIONS
    known = PRODUCT_INSTRUCTIONS if operator.function == "multiply" else SUM_INSTRUCTIONS
    return known[operator.rounding]


def same_shape(operator: QBinary, target: Target) -> bool:
    """both inputs must have the output's shape"""
    return all(t.shape == operator.output.shape for t in operator.inputs)


def results_in_range(operator: QBinary, target: Target) -> bool:
    """no result may reach 2^30 steps of the output before it is clamped, nor a product in rounding "tflite" 2^31"""
    if operator.function == "multiply":
        largest = np.array(_largest_product(operator))
        fits = operator.rounding != "tflite" or _largest_product(operator) < 1 << 31
        return fits and results_fit(-largest, largest, _product_factor(operator))
    largest = np.array(sum(largest_distance(tensor) for tensor in operator.inputs))
    return results_fit(-largest, largest, np.array(_scale_ratios(operator)))


def _largest_product(operator: QBinary) -> int:
    """Return a bound of a product's magnitude; a product of 16-bit elements may need more than 32 bits."""
    first, second = (largest_distance(tensor) for tensor in operator.inputs)
    return first * second


def _scale_ratios(operator: QBinary) -> list[float]:
    """Return the output steps of one step of each input."""
    return [scale_of(t) / scale_of(operator.output) for t in operator.inputs]


def _product_factor(operator: QBinary) -> np.ndarray:
    """Return the output steps of one unit of the product, float64[1]."""
    a, b = operator.inputs
    if operator.rounding == "litert":
        return litert_factor(scale_of(a), scale_of(b), scale_of(operator.output))
    return np.array([scale_of(a) * scale_of(b) / scale_of(operator.output)])


def product(operator: QBinary) -> Requantize:
    largest = _largest_product(operator)
    exact = Requantize.of(
        _product_factor(operator), output=operator.output, low=operator.low, high=operator.high,
        rounding=operator.rounding, largest=largest,
    )  # fmt: skip
    return exact.proved(np.array([-largest]), np.array([largest]))


def tflite_shift(operator: QBinary) -> int:
    """Return the fractional bits of TensorFlow Lite's sum."""
    return TFLITE_SHIFTS[np.dtype(operator.output.dtype).itemsize]


def tflite_factors(operator: QBinary) -> list[tuple[int, int]]:
    """Return (mantissa, shift) of input 0, input 1, and then of their sum to the output scale."""
    scales = [scale_of(t) for t in operator.inputs]
    common = 2 * max(scales)
    step = common / (1 << tflite_shift(operator))
    factors = [*(scale / common for scale in scales), step / scale_of(operator.output)]
    return [requantize_tflite.fixed_point(factor) for factor in factors]


def _tflite_sum(operator: QBinary, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    to_common, from_b, to_output = tflite_factors(operator)
    first, second = (
        requantize_tflite.multiply(x << tflite_shift(operator), *factor) for x, factor in ((a, to_common), (b, from_b))
    )
    return requantize_tflite.multiply(first - second if operator.function == "subtract" else first + second, *to_output)


def common_shift(operator: QBinary) -> tuple[int, int, int]:
    """Return (factor of a, factor of b, shift): the larger factor has 31 bits, and both have the same shift.

    XNNPACK's has 21 bits (`xnn_init_qs8_add_minmax_scalar_params`); LiteRT's default kernels add and subtract so.
    """
    if operator.rounding == "litert":
        return _litert_sum(operator)
    ratios = _scale_ratios(operator)
    mantissa, shift = fixed_point(max(ratios))
    shift = shift if mantissa else MAX_SHIFT
    factor_a, factor_b = (round(ratio * 2.0**shift) for ratio in ratios)
    return factor_a, -factor_b if operator.function == "subtract" else factor_b, shift


def _litert_sum(operator: QBinary) -> tuple[int, int, int]:
    """Return XNNPACK's (factor of a, factor of b, shift) of a sum."""
    factor_a, factor_b, shift = sum_factors(*(scale_of(t) for t in (*operator.inputs, operator.output)))
    return factor_a, -factor_b if operator.function == "subtract" else factor_b, shift


def has_ties(operator: QBinary) -> bool:
    """Return True if some two elements add up to halfway between two results, with one rounding."""
    factor_a, factor_b, shift = common_shift(operator)
    a, b = (np.arange(256, dtype=np.int64) + np.iinfo(t.dtype).min for t in operator.inputs)
    zero_a, zero_b = (quantization(t).zero_point for t in operator.inputs)
    sums = ((a - zero_a) * factor_a)[:, np.newaxis] + (b - zero_b) * factor_b
    return bool(((sums & ((1 << shift) - 1)) == 1 << (shift - 1)).any())


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    a, b, output = (C_TYPES[t.dtype] for t in (*operator.inputs, operator.output))
    operands = (
        Parameter(name="input0", ctype=a, role="input"),
        Parameter(name="input1", ctype=b, role="input"),
        Parameter(name="output", ctype=output, role="output"),
    )
    rows = rows_of(operator.output, num_inputs=2)
    return Implementation(
        kernel=QBINARY.name,
        function=CFunction(
            parameters=(*operands, *(ROW_PARAMETERS if rows else ())),
            body=_body(stored, by_rows=rows is not None),
            helpers=shapes(LAYER, layer_members(operator, stored)),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        macs=operator.output.num_elements if operator.function == "multiply" else 0,
        instructions=operator.output.num_elements * element_instructions(operator),
        spatial=rows,
        in_place=(0, 1),
        exact=True,
        pitched=True,
        row_pitched=rows is not None,
    )


def is_sum(operator: QBinary, target: Target) -> bool:
    """the function must be add or subtract"""
    return operator.function in ("add", "subtract")


def every_pair(operator: QBinary) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all pairs of 8-bit elements, int64[256, 256] each, and their results."""
    limits = [np.iinfo(tensor.dtype) for tensor in operator.inputs]
    a, b = np.meshgrid(*(np.arange(i.min, i.max + 1, dtype=np.int64) for i in limits), indexing="ij")
    return a, b, reference(operator, [a, b])[0]


def over_elements(
    operator: QBinary,
    target: Target,
    stored: StoredRows,
    *,
    kernel: str,
    run: Callable[[int], list[str]],
    helpers: str,
    includes: tuple[str, ...],
    element_instructions: int,
) -> Implementation:
    """Return the implementation of a target's kernel that computes elements one after the other.

    run: code for a number of elements, as `over_runs` takes it. helpers: functions that it calls.
    """
    portable = implement(operator, target, stored)
    body = over_runs(portable.function.parameters[:3], operator.output, stored, run)
    return replace(
        portable,
        kernel=kernel,
        function=replace(portable.function, body=body, helpers=helpers, includes=includes),
        instructions=operator.output.num_elements * element_instructions,
    )


def element_members(operator: QBinary) -> dict[str, Value]:
    """Return a `tvm_ext_qbinary` of tvm_ext_qbinary.h, without constants that the function does not need."""
    first, second = (quantization(tensor).zero_point for tensor in operator.inputs)
    members: dict[str, Value] = {
        "is_product": operator.function == "multiply", "is_difference": operator.function == "subtract",
        "rounds_twice": operator.rounding == "tflite", "first_zero_point": first, "second_zero_point": second,
    }  # fmt: skip
    if operator.function == "multiply":
        finish = product(operator)
        members |= {"is_wide": True} if _largest_product(operator) >= 1 << 31 else {}
        members |= {"in_floats": True} if finish.rounding == "litert" else {}
        members |= factor_members(int(finish.mantissa[0]), int(finish.shift[0]))
    elif operator.rounding == "tflite":
        to_common, from_second, to_output = tflite_factors(operator)
        members |= factor_members(*to_common, "first_") | factor_members(*from_second, "second_")
        members |= {**factor_members(*to_output), "bits": tflite_shift(operator)}
    else:
        factor, other, shift = common_shift(operator)
        reals = " and ".join(f"{multiplier / 2.0**shift:.6g}" for multiplier in (factor, abs(other)))
        members |= {
            **({"rounds_up": True} if operator.rounding == "litert" else {}),
            "first_multiplier": factor, "second_multiplier": abs(other), "shift": f"{shift} /* factors {reals} */",
        }  # fmt: skip
    zero_point = quantization(operator.output).zero_point
    return {**members, "zero_point": zero_point, "low": operator.low, "high": operator.high}


def layer_members(operator: QBinary, stored: StoredRows) -> dict[str, Value]:
    """Return a `tvm_ext_qbinary_layer`."""
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    output = image(one_image(operator.output), stored=stored)
    return {"first": first, "second": second, "output": output, "function": element_members(operator)}


def _body(stored: StoredRows, *, by_rows: bool) -> str:
    """Return a call of the loops of tvm_ext_qbinary.h, over the rows of a call or over all rows."""
    rings, layer = with_rings(LAYER, stored, ("first", "second"))
    rows = "row_begin, row_end" if by_rows else "0, 1"
    return "\n".join([*rings, f"tvm_ext_qbinary_rows({layer}, input0, input1, output, {rows});"])


def rows_of(output: TensorType, *, num_inputs: int) -> Spatial | None:
    """Return the row behaviour of an element-wise kernel:

    row h of the output reads row h. None unless one NHWC image.
    """
    if len(output.shape) != 4 or output.shape[0] != 1:
        return None
    return row_by_row(output.shape[1], num_inputs)


def over_runs(
    operands: Sequence[Parameter], output: TensorType, stored: StoredRows, run: Callable[[int], list[str]]
) -> str:
    """Return `run(count)` for each run that is contiguous in all operands: rows, pixels with a pitch, or all.

    operands: inputs in order, then the output. In a run `<operand>_row` points to its `count` elements.
    """
    is_spatial = rows_of(output, num_inputs=0) is not None
    channels = output.shape[-1] if stored.pitch else 1
    pixels = output.num_elements // channels // (output.shape[1] if is_spatial else 1)
    kept = [*(stored.input(index) for index in range(len(operands) - 1)), stored.output]
    pointers: list[str] = []
    for operand, rows in zip(operands, kept, strict=True):
        apart = stored.pitch or 1 if operand is operands[-1] else channels
        row = stored.row_pitch if stored.row_pitch and operand is operands[-1] else pixels * apart
        first = offset({slot("h", rows): row * is_spatial, "w": apart if stored.pitch else 0})
        qualifier = "const " if operand.role == "input" else ""
        place = operand.name if first == "0" else f"&{operand.name}[{first}]"
        pointers.append(f"{qualifier}{operand.ctype} *{operand.name}_row = {place};")
    lines = [*pointers, *run(channels if stored.pitch else pixels)]
    if stored.pitch:
        lines = loop("w", pixels, lines)
    if is_spatial:
        lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    return "\n".join(lines)


QBINARY = Kernel(
    name="qbinary_i8",
    title="Quantized add, subtract and multiply of tensors of one shape, 8 bits",
    operator=QBinary,
    implement=implement,
    constraints=(quantized_bytes, same_shape, results_in_range),
)


# add, subtract and multiply of two 16-bit quantized tensors of one shape, by the loops of the 8-bit kernel.
#
# int16 or uint16[...], int16 or uint16[...] -> int16 or uint16[...].

QBINARY_I16 = wide_kernel(
    "qbinary_i16",
    "Quantized add, subtract and multiply of tensors of one shape, 16 bits",
    QBINARY,
    quantized_words,
    same_shape,
    results_in_range,
)


# add, subtract and multiply of two quantized tensors with broadcasting, such as a gate over an image; integers only.
#
# int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...], as numpy broadcasts shapes. Each element is computed as
# for equal shapes. For one NHWC image, row h of the output reads row h of each input, or its only row.

INDICES = "nhwcijkl"


def repeats_to_output(operator: QBinary | QDivide | Extreme, target: Target) -> bool:
    """each input axis must have the output's extent or 1, and there must be at most eight axes"""
    output = operator.output.shape
    shapes = [padded(tensor, output) for tensor in operator.inputs]
    return len(output) <= len(INDICES) and all(
        len(shape) == len(output) and all(a in (1, b) for a, b in zip(shape, output, strict=True)) for shape in shapes
    )


def padded(tensor: TensorType, output: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tensor's shape with as many axes as the output."""
    return (1,) * (len(output) - len(tensor.shape)) + tensor.shape


def qbroadcast_implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    output = operator.output
    shapes = [padded(tensor, output.shape) for tensor in operator.inputs]
    types = [C_TYPES[tensor.dtype] for tensor in (*operator.inputs, output)]
    rows = broadcast_rows(operator)
    names = ("input0", "input1", "output")
    first, *others = structure("tvm_ext_qbinary", "$_function", element_members(operator))

    def element(a: str, b: str, result: str) -> str:
        return f"{result} = ({types[2]})tvm_ext_qbinary_element(&$_function, {a}, {b});"

    return Implementation(
        kernel=QBROADCAST.name,
        function=CFunction(
            parameters=(
                *(
                    Parameter(name=name, ctype=ctype, role="output" if name == "output" else "input")
                    for name, ctype in zip(names, types, strict=True)
                ),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body=broadcast_body([*shapes, output.shape], types, stored, element, by_rows=rows is not None),
            helpers="\n".join([f"static {first}", *others, ""]),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        macs=output.num_elements if operator.function == "multiply" else 0,
        instructions=output.num_elements * element_instructions(operator),
        spatial=rows,
        in_place=tuple(index for index, shape in enumerate(shapes) if shape == output.shape),
        exact=True,
    )


def shared_run(shapes: Sequence[tuple[int, ...]], first: int) -> int:
    """Return the number of last axes, none before axis `first`, along which inputs are whole or have one element.

    shapes: of the inputs, then of the output, all with the same number of axes.
    """
    *inputs, output = shapes
    alike = (
        count
        for count in range(1, len(output) - first + 1)
        if all(shape[-count:] in (output[-count:], (1,) * count) for shape in inputs)
    )
    return max(alike, default=0)


def broadcast_rows(operator: QBinary | QDivide | Extreme) -> Spatial | None:
    """Return the row behaviour of an operator that broadcasts: None unless one NHWC image of inputs of four axes."""
    output = operator.output.shape
    if len(output) != 4 or output[0] != 1 or any(len(tensor.shape) != 4 for tensor in operator.inputs):
        return None
    extents = [tensor.shape[1] for tensor in operator.inputs]
    inputs = tuple(RowAccess.same(rows) if rows == output[1] else RowAccess.whole(output[1]) for rows in extents)
    return Spatial(output_rows=output[1], inputs=inputs)


def broadcast_body(
    shapes: Sequence[tuple[int, ...]],
    types: Sequence[str],
    stored: StoredRows,
    statement: Callable[[str, str, str], str],
    *,
    by_rows: bool,
    run_axes: int = 0,
) -> str:
    """Return loops over the output's axes; for images the rows come first and may be stored in rings.

    shapes, types: of both inputs and the output, all with the same number of axes. statement: returns C from the
    expressions of an element of each. run_axes: number of last axes without loops, whose elements the C walks itself.
    """
    output, first = shapes[-1], 2 if by_rows else 0
    kept = [stored.input(0), stored.input(1), stored.output]
    rows: list[str] = []
    operands: list[str] = []
    for name, shape, ctype, ring in zip(("input0", "input1", "output"), shapes, types, kept, strict=True):
        has_rows = by_rows and shape[1] == output[1]
        row = times(slot("h", ring), shape[2] * shape[3]) if has_rows else "0"
        qualifier = "" if name == "output" else "const "
        rows += [f"{qualifier}{ctype} *{name}_row = &{name}[{row}];"] if has_rows else []
        operands.append(f"{name}{'_row' if has_rows else ''}[{_place(shape, first, run_axes)}]")
    lines = [statement(operands[0], operands[1], operands[2])]
    for axis in reversed(range(first, len(output) - run_axes)):
        if output[axis] > 1:
            index = INDICES[axis]
            lines = loop(index, output[axis], lines)
    if by_rows:
        lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block([*rows, *lines]), "}"]
    return "\n".join(lines)


def _place(shape: tuple[int, ...], first: int, run_axes: int) -> str:
    """Return the C expression of an element's index, from axis `first` on; axes of extent 1 do not contribute.

    run_axes: number of last axes at whose first element the index is.
    """
    terms: list[str] = []
    stride = 1
    for axis in reversed(range(first, len(shape))):
        if shape[axis] > 1 and axis < len(shape) - run_axes:
            terms.insert(0, times(INDICES[axis], stride))
        stride *= shape[axis]
    return " + ".join(terms) or "0"


QBROADCAST = Kernel(
    name="qbroadcast_i8",
    title="Quantized add, subtract and multiply with broadcasting, 8 bits",
    operator=QBinary,
    implement=qbroadcast_implement,
    constraints=(quantized_bytes, repeats_to_output, results_in_range),
)


# add, subtract and multiply of two 16-bit quantized tensors with broadcasting, by the loops of the 8-bit kernel.
#
# int16 or uint16[...], int16 or uint16[...] -> int16 or uint16[...], as numpy broadcasts shapes.

QBROADCAST_I16 = wide_kernel(
    "qbroadcast_i16",
    "Quantized add, subtract and multiply with broadcasting, 16 bits",
    QBROADCAST,
    quantized_words,
    repeats_to_output,
    results_in_range,
)


KERNELS = (QBINARY, QBINARY_I16, QBROADCAST, QBROADCAST_I16)
