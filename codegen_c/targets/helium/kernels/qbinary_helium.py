"""add, subtract and multiply of two QDQ tensors of one shape with Helium: eight elements at a time.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. A sum of factor * element needs more than 32 bits:
factors are cut into a high part and a low part of 16 bits, each summed by itself, the low sum's carry added to
the high one. Its rounding shift then rounds the whole, as what is left of the low sum cannot carry; whether any
two elements lead to a tie is found by trying all. Rounding "onnx".
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, block
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.requantize import quantization, signed
from codegen_c.kernels.shared.window import ROW_PARAMETERS, over
from codegen_c.operators.kinds import QBinary
from codegen_c.targets.helium.kernels.helium import DOUBLED_BITS, INCLUDES, LANES, OutputRange, Rescale

LOW_BITS = 16
MOST_SHIFT = LOW_BITS + 31
AT_ONCE = 8
# Least and largest product of two elements less their zero points.
PRODUCTS = (np.array([-255 * 255]), np.array([255 * 255]))


def adds_where_rounded_twice(operator: QBinary, target: Target) -> bool:
    """of TensorFlow Lite's operators it takes sums and products"""
    return operator.rounding == "onnx" or operator.function in ("add", "multiply")


def factors_in_range(operator: QBinary, target: Target) -> bool:
    """the larger ratio of input to output scale must be from 2^-16 up to 2^14, and products small where it matters"""
    if operator.function == "multiply":
        return _product(operator).fits(*PRODUCTS)
    if operator.rounding == "tflite":
        return all(shift >= DOUBLED_BITS for _, shift in qbinary.tflite_factors(operator))
    return LOW_BITS < qbinary.common_shift(operator)[2] <= MOST_SHIFT


def _product(operator: QBinary) -> Rescale:
    return Rescale.of(qbinary.product(operator), *PRODUCTS)


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    operands = (
        *(Parameter(name=f"input{i}", ctype=C_TYPES[t.dtype], role="input") for i, t in enumerate(operator.inputs)),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
    )
    rows = qbinary.rows_of(operator.output, num_inputs=2)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*operands, *(ROW_PARAMETERS if rows else ())),
            body=qbinary.over_runs(operands, operator.output, stored, lambda count: _run(operator, count)),
            helpers=_helper(operator),
            includes=INCLUDES,
        ),
        reference=lambda inputs: qbinary.reference(operator, inputs),
        macs=operator.output.num_elements if operator.function == "multiply" else 0,
        instructions=-(-operator.output.num_elements // AT_ONCE) * 42,
        spatial=rows,
        in_place=(0, 1),
        exact=True,
        pitched=True,
    )


def _helper(operator: QBinary) -> str:
    """`$_four(a, b)`: the results of four elements in 32 bits, without the zero point."""
    if operator.function == "multiply":
        lines = _four_products(operator)
    else:
        lines = _four_sums(operator) if operator.rounding == "onnx" else _four_tflite_sums(operator)
    head = "static inline tvm_ext_i32x4 $_four(tvm_ext_i32x4 a, tvm_ext_i32x4 b)"
    return f"{head}\n{{\n{block(lines)}\n}}\n"


def _four_products(operator: QBinary) -> list[str]:
    finish = _product(operator)
    (multiplier, shift), zeros = finish.factors(), [quantization(t).zero_point for t in operator.inputs]
    a, b = (
        f"tvm_ext_i32x4_add({name}, tvm_ext_i32x4_splat({-zero}))" if zero else name
        for name, zero in zip("ab", zeros, strict=True)
    )
    scaled = finish.scaled("product", f"tvm_ext_i32x4_splat({multiplier[0]})", f"tvm_ext_i32x4_splat({shift[0]})")
    return [f"const tvm_ext_i32x4 product = tvm_ext_i32x4_multiply({a}, {b});", f"return {scaled};"]


def _four_sums(operator: QBinary) -> list[str]:
    *factors, shift = qbinary.common_shift(operator)
    zeros = [quantization(t).zero_point for t in operator.inputs]
    start = -sum(zero * factor for zero, factor in zip(zeros, factors, strict=True))
    high = [number >> LOW_BITS for number in (start, *factors)]
    low = [number & ((1 << LOW_BITS) - 1) for number in (start, *factors)]

    def total(parts: list[int]) -> str:
        inner = f"tvm_ext_i32x4_mla(tvm_ext_i32x4_splat({parts[0]}), a, {parts[1]})"
        return f"tvm_ext_i32x4_mla({inner}, b, {parts[2]})"

    amount = f"tvm_ext_i32x4_splat({LOW_BITS - shift})"
    rounded = f"tvm_ext_i32x4_round_shift(sum, {amount})"
    if _has_ties(operator):
        rounded = f"tvm_ext_i32x4_round_shift_even(sum, tvm_ext_i32x4_shift(low, {LOW_BITS}), {amount})"
    return [
        f"const tvm_ext_i32x4 low = {total(low)};",
        f"const tvm_ext_i32x4 high = {total(high)};",
        f"const tvm_ext_i32x4 sum = tvm_ext_i32x4_add(high, tvm_ext_i32x4_shift(low, -{LOW_BITS}));",
        f"return {rounded};",
    ]


def _four_tflite_sums(operator: QBinary) -> list[str]:
    """Both operands on a common scale, rounded; then their sum on the output's, rounded."""
    *inputs, (mantissa, shift) = qbinary.tflite_factors(operator)
    lines: list[str] = []
    for name, kind, factor in zip("ab", operator.inputs, inputs, strict=True):
        centred = f"tvm_ext_i32x4_add({name}, tvm_ext_i32x4_splat({-quantization(kind).zero_point}))"
        lines.append(f"const tvm_ext_i32x4 common_{name} = {_common(centred, *factor)};")
    total = "tvm_ext_i32x4_add(common_a, common_b)"
    # Halves away from zero are halves up but for sums below zero, which a fused ReLU hides.
    rounds_up = shift > DOUBLED_BITS and operator.low >= quantization(operator.output).zero_point
    return [*lines, f"return {_scaled(total, mantissa, shift, 'round_shift' if rounds_up else 'shift_away')};"]


def _common(value: str, mantissa: int, shift: int) -> str:
    """An operand on the common scale, which is twice the larger one: for that operand a half, exact."""
    if (mantissa, shift) == (1 << (DOUBLED_BITS - 1), DOUBLED_BITS):
        return f"tvm_ext_i32x4_shift({value}, {qbinary.TFLITE_SHIFT - 1})"
    return _scaled(f"tvm_ext_i32x4_shift({value}, {qbinary.TFLITE_SHIFT})", mantissa, shift, "shift_away")


def _scaled(value: str, mantissa: int, shift: int, function: str) -> str:
    product = f"tvm_ext_i32x4_multiply_doubled({value}, tvm_ext_i32x4_splat({mantissa}))"
    return f"tvm_ext_i32x4_{function}({product}, tvm_ext_i32x4_splat({DOUBLED_BITS - shift}))"


def _has_ties(operator: QBinary) -> bool:
    """True where some two elements add up to halfway between two results."""
    factor_a, factor_b, shift = qbinary.common_shift(operator)
    a, b = (np.arange(256, dtype=np.int64) + np.iinfo(t.dtype).min for t in operator.inputs)
    zero_a, zero_b = (quantization(t).zero_point for t in operator.inputs)
    sums = ((a - zero_a) * factor_a)[:, np.newaxis] + (b - zero_b) * factor_b
    return bool(((sums & ((1 << shift) - 1)) == 1 << (shift - 1)).any())


def _run(operator: QBinary, count: int) -> list[str]:
    """Eight elements at a time."""
    first, second = ("4", "4") if count % AT_ONCE == 0 else ("count", "more")
    loads = [
        [
            f"tvm_ext_i32x4_load_{'u8' if t.dtype == 'uint8' else 'i8'}(&input{index}_row[i{signed(at)}], {n})"
            for index, t in enumerate(operator.inputs)
        ]
        for at, n in ((0, first), (LANES, second))
    ]
    limits = OutputRange(output=operator.output, low=operator.low, high=operator.high)
    left = [
        f"const int32_t count = {count} - i;",
        f"const int32_t more = count > {LANES} ? count - {LANES} : 0;",
    ]
    step = [
        *(left if count % AT_ONCE else []),
        *(
            f"const tvm_ext_i32x4 {n} = $_four({', '.join(pair)});"
            for n, pair in zip(("even", "odd"), loads, strict=True)
        ),
        "const tvm_ext_i16x8 narrow = tvm_ext_i16x8_narrow(even, odd);",
        f"const tvm_ext_i16x8 results = {limits.pairs('narrow')};",
        f"tvm_ext_i16x8_store_even(&output_row[i], results, {first});",
        f"tvm_ext_i16x8_store_odd(&output_row[i + {LANES}], results, {second});",
    ]
    return over("i", 0, count, step, step=AT_ONCE)


KERNEL = Kernel(
    name="qbinary_helium",
    operator=QBinary,
    implement=implement,
    constraints=(adds_where_rounded_twice, *qbinary.KERNEL.constraints, factors_in_range),
)
