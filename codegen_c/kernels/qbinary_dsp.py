"""add and subtract of two QDQ tensors of one shape by high products and saturation, element by element.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. Rounding "onnx": both factors share one shift, and a
sum of 64 bits that starts at half a step, the zero points folded in, is shifted once: halves up. Taken only where
that is halves to even for each of the 65536 pairs of elements. Rounding "tflite": its two roundings of each
factor, as in requantize_dsp.py.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels import qbinary
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.product_dsp import has_dsp, suffix
from codegen_c.kernels.requantize import INCLUDES, quantization, round_shift, signed
from codegen_c.kernels.window import ROW_PARAMETERS, slot
from codegen_c.operators import QBinary
from codegen_c.text import C_TYPES, block, times

# A zero point of 8 bits times 2^shift and the sum must fit 63 bits together.
MOST_SHIFT = 52
UNROLLED = 4
TFLITE_SHIFT = 20


def is_sum(operator: QBinary, target: Target) -> bool:
    """the function must be add or subtract"""
    return operator.function in ("add", "subtract")


def rounds_half_up(operator: QBinary, target: Target) -> bool:
    """no two elements may add up to half a step of the output that rounds down, nor factors be tiny"""
    if operator.rounding == "tflite":
        return all(31 <= shift < 63 for _, shift in qbinary._tflite_factors(operator))
    factor_a, factor_b, shift = qbinary._common_shift(operator)
    if shift > MOST_SHIFT:
        return False
    a, b = (_elements(operator, index) for index in (0, 1))
    sums = (a * factor_a)[:, np.newaxis] + (b * factor_b)[np.newaxis, :]
    half_up = (sums + (np.int64(1) << np.int64(shift - 1))) >> np.int64(shift)
    return bool((half_up == round_shift(sums, shift)).all())


def _elements(operator: QBinary, index: int) -> np.ndarray:
    """Every value of an input less its zero point, int64[256]."""
    tensor = operator.inputs[index]
    limits = np.iinfo(tensor.dtype)
    return np.arange(limits.min, limits.max + 1, dtype=np.int64) - quantization(tensor).zero_point


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    names = ("input0", "input1", "output")
    ctypes = [C_TYPES[t.dtype] for t in (*operator.inputs, operator.output)]
    operands = [
        Parameter(name=name, ctype=ctype, role="output" if name == "output" else "input")
        for name, ctype in zip(names, ctypes, strict=True)
    ]
    rows = qbinary.rows_of(operator.output, num_inputs=2)
    per_element = 13 if operator.rounding == "onnx" else 20
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*operands, *(ROW_PARAMETERS if rows else ())),
            body=_body(operator, operands, stored, 1 if target.optimize == "size" else UNROLLED),
            helpers=_helper(operator),
            includes=("tvm_ext_dsp.h", *INCLUDES),
        ),
        reference=lambda inputs: qbinary.reference(operator, inputs),
        instructions=operator.output.num_elements * per_element,
        spatial=rows,
        in_place=(0, 1),
        exact=True,
    )


def _helper(operator: QBinary) -> str:
    """`$_apply(a, b)`: one element."""
    output, limits = operator.output, np.iinfo(operator.output.dtype)
    lines = _tflite_value(operator) if operator.rounding == "tflite" else _value(operator)
    saturated = f"tvm_ext_dsp_saturate_{suffix(output)}(value)"
    if (operator.low, operator.high) != (limits.min, limits.max):
        saturated = f"tvm_ext_clamp(value, {operator.low}, {operator.high})"
    ctype = C_TYPES[output.dtype]
    body = block([*lines, f"return ({ctype}){saturated};"])
    return f"static inline {ctype} $_apply(int32_t a, int32_t b)\n{{\n{body}\n}}\n"


def _value(operator: QBinary) -> list[str]:
    """Declaration of the rounded sum, zero point added."""
    factor_a, factor_b, shift = qbinary._common_shift(operator)
    zero_a, zero_b = (quantization(t).zero_point for t in operator.inputs)
    start = (1 << (shift - 1)) + (quantization(operator.output).zero_point << shift)
    start -= zero_a * factor_a + zero_b * factor_b
    sum_ = f"(int64_t)a * {factor_a} {'-' if factor_b < 0 else '+'} (int64_t)b * {abs(factor_b)}"
    return [f"const int64_t sum = {sum_} + INT64_C({start});", f"const int32_t value = (int32_t)(sum >> {shift});"]


def _tflite_value(operator: QBinary) -> list[str]:
    """The same with TensorFlow Lite's steps: inputs to a common scale, their sum to the output's."""
    zero_a, zero_b = (quantization(t).zero_point for t in operator.inputs)
    *factors, (mantissa, shift) = qbinary._tflite_factors(operator)
    lines: list[str] = []
    for name, zero_point, (factor, right) in zip("ab", (zero_a, zero_b), factors, strict=True):
        doubled = f"{times(name + signed(-zero_point), 2 << TFLITE_SHIFT)}"
        lines += _scaled(f"common_{name}", doubled, factor, right - 31)
    sign = "-" if operator.function == "subtract" else "+"
    lines += [f"const int32_t sum = common_a {sign} common_b;", *_scaled("scaled", "sum * 2", mantissa, shift - 31)]
    return [*lines, f"const int32_t value = scaled{signed(quantization(operator.output).zero_point)};"]


def _scaled(name: str, doubled: str, mantissa: int, right: int) -> list[str]:
    """Declaration of a value, given twice itself, times mantissa / 2^(31 + right) with both roundings."""
    if mantissa == 1 << 30 and right == 0 and not doubled.startswith("sum"):  # half of an even number
        return [f"const int32_t {name} = ({doubled}) / 4;"]
    product = f"tvm_ext_dsp_high_product_rounded({doubled}, {mantissa})"
    if right == 0:
        return [f"const int32_t {name} = {product};"]
    return [
        f"const int32_t high_{name} = {product};",
        f"const int32_t {name} = (high_{name} + (high_{name} >> 31) + {1 << (right - 1)}) >> {right};",
    ]


def _body(operator: QBinary, operands: list[Parameter], stored: StoredRows, unrolled: int) -> str:
    """Elements in order, `unrolled` at a time, row by row where the output has rows."""
    output = operator.output
    is_spatial = qbinary.rows_of(output, num_inputs=0) is not None
    count = output.num_elements // output.shape[1] if is_spatial else output.num_elements
    kept = [stored.input(0), stored.input(1), stored.output]
    lines: list[str] = []
    for operand, name, rows in zip(operands, "aby", kept, strict=True):
        qualifier = "const " if operand.role == "input" else ""
        place = f"&{operand.name}[{times(slot('h', rows), count)}]" if is_spatial else operand.name
        lines.append(f"{qualifier}{operand.ctype} *{name} = {place};")
    full = count // unrolled * unrolled

    def elements(number: int) -> list[str]:
        return [f"y[{i}] = $_apply(a[{i}], b[{i}]);" for i in range(number)]

    if full:
        step = [f"{name} += {unrolled};" for name in "aby"]
        lines += [f"for (int32_t i = 0; i < {full}; i += {unrolled}) {{", block([*elements(unrolled), *step]), "}"]
    lines += elements(count - full)
    if is_spatial:
        lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    return "\n".join(lines)


KERNEL = Kernel(
    name="qbinary_dsp",
    operator=QBinary,
    implement=implement,
    constraints=(has_dsp, is_sum, *qbinary.KERNEL.constraints, rounds_half_up),
)
