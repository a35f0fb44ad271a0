"""Kernel for quantized add and subtract of one shape by the DSP extension, by high products and saturation.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. With both factors on one shift, a result is

    (floor(a * 2^k * factor_a / 2^32) + floor(b * 2^k * factor_b / 2^32) + start) / 2^n, rounded down

where the start contains the zero points and half a step. This drops bits, so it is used only if it gives the portable
kernel's bytes for each of the 65536 pairs of elements, in either rounding; a start near the exact one may do so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, block, loop, structure, times
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary, qprelu
from codegen_c.kernels.shared.requantize import INCLUDES, fixed_point, quantization, scale_of
from codegen_c.operators.kinds import QBinary, QPrelu
from codegen_c.targets.dsp.kernels.product import suffix

# Elements of 9 bits and a sign, and factors of 31 bits, leave room for this shift in a 32-bit product.
MOST_LEFT = 22
# Fractional bits of a result; above them are its 9 bits, and some bits for saturation.
FRACTION_BITS = 20
UNROLLED = 4
NAMES = ("input0", "input1", "output")
ELEMENT_INSTRUCTIONS = 10


@dataclass(frozen=True, kw_only=True)
class Formula:
    """The constants of the formula above: left is k, right is n."""

    factors: tuple[int, int]
    left: int
    right: int
    start: int


def is_exact(operator: QBinary, target: Target) -> bool:
    """sums of two high products must give the portable kernel's bytes for every pair of elements"""
    return _formula(operator) is not None


def _formula(operator: QBinary) -> Formula | None:
    """Return the constants that give the reference's bytes for every pair of elements, if there are any."""
    ratios = [scale_of(t) / scale_of(operator.output) for t in operator.inputs]
    shift = fixed_point(max(ratios))[1]
    factor_a, factor_b = (round(ratio * 2.0**shift) for ratio in ratios)
    factor_b = -factor_b if operator.function == "subtract" else factor_b
    left = min(MOST_LEFT, 32 + FRACTION_BITS - shift)
    right = shift - 32 + left
    if left < 0 or not 1 <= right < 31:
        return None
    zero_a, zero_b = (quantization(t).zero_point for t in operator.inputs)
    a, b, expected = qbinary.every_pair(operator)
    products = ((a << left) * factor_a >> 32) + ((b << left) * factor_b >> 32)
    zero_point = quantization(operator.output).zero_point
    start = (zero_point << right) + (1 << (right - 1)) - ((zero_a * factor_a + zero_b * factor_b) >> (32 - left))
    if max(np.abs(products).max() + abs(start), abs(start)) >= (1 << 31) - 2:
        return None
    for nearby in (start + 1, start, start + 2):
        result = np.clip((products + nearby) >> right, operator.low, operator.high)
        if (result == expected).all():
            return Formula(factors=(factor_a, factor_b), left=left, right=right, start=nearby)
    return None


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    unrolled = 1 if target.optimize == "size" else UNROLLED
    return qbinary.over_elements(
        operator, target, stored, kernel=QBINARY.name, run=lambda count: _run(count, unrolled),
        helpers=_helper(operator), includes=("tvm_ext_dsp.h", *INCLUDES), element_instructions=ELEMENT_INSTRUCTIONS,
    )  # fmt: skip


def _helper(operator: QBinary) -> str:
    """Return `$_apply(a, b)`, which computes one element."""
    output, limits, formula = operator.output, np.iinfo(operator.output.dtype), _formula(operator)
    assert formula is not None, "refused before"
    scaled = [times(name, 1 << formula.left) for name in "ab"]
    first = f"tvm_ext_dsp_high_product({scaled[0]}, {formula.factors[0]}, {formula.start})"
    saturated = f"tvm_ext_saturate_{suffix(output)}(value)"
    if (operator.low, operator.high) != (limits.min, limits.max):
        saturated = f"tvm_ext_clamp(value, {operator.low}, {operator.high})"
    ctype = C_TYPES[output.dtype]
    shift = 32 - formula.left + formula.right
    real_a, real_b = (abs(factor) / 2.0**shift for factor in formula.factors)
    sign = "-" if operator.function == "subtract" else "+"
    lines = [
        f"/* {real_a:.6g} * a {sign} {real_b:.6g} * b, less the zero points */",
        f"const int32_t first = {first};",
        f"const int32_t sum = tvm_ext_dsp_high_product({scaled[1]}, {formula.factors[1]}, first);",
        f"const int32_t value = sum >> {formula.right};",
        f"return ({ctype}){saturated};",
    ]
    return f"static inline {ctype} $_apply(int32_t a, int32_t b)\n{{\n{block(lines)}\n}}\n"


def _run(count: int, unrolled: int) -> list[str]:
    """Return code for elements in order, `unrolled` at a time."""
    full = count // unrolled * unrolled

    def elements(number: int) -> list[str]:
        return [f"output_row[{i}] = $_apply(input0_row[{i}], input1_row[{i}]);" for i in range(number)]

    step = [f"{name}_row += {unrolled};" for name in NAMES]
    if count == unrolled:
        return elements(count)
    unrolled_run = loop("i", full, [*elements(unrolled), *step], step=unrolled) if full else []
    return [*unrolled_run, *elements(count - full)]


QBINARY = Kernel(
    name="qbinary_dsp",
    title="Quantized add and subtract of tensors of one shape",
    operator=QBinary,
    implement=implement,
    constraints=(qbinary.is_sum, *qbinary.QBINARY.constraints, is_exact),
)


# PReLU of a quantized tensor by the DSP extension: four elements at a time, in pairs of 16 bits.
#
# int8 or uint8[...] -> int8 or uint8[...], the bytes of the portable kernel.

PRELU_INCLUDES = ("tvm_ext_dsp_prelu.h", "tvm_ext_dsp.h", "tvm_ext_kernels.h")
PRELU_INSTRUCTIONS, ORDER = 6, (0, 2, 1, 3)
"""Modelled instructions of an element, and the order in which the slopes of four elements are stored."""


def fours_of_slopes(operator: QPrelu, target: Target) -> bool:
    """slopes must repeat after a multiple of four elements, and results have no bounds but those of their type"""
    limits = np.iinfo(operator.output.dtype)
    is_whole = (operator.low, operator.high) == (limits.min, limits.max)
    return is_whole and qprelu.FixedPrelu.of(operator).below.size % len(ORDER) == 0


def prelu_implement(operator: QPrelu, target: Target, stored: StoredRows) -> Implementation:
    made, fixed = qprelu.KERNEL.implement(operator, target, stored), qprelu.FixedPrelu.of(operator)
    source, output, period = operator.inputs[0], operator.output, fixed.below.size
    limits = np.iinfo(output.dtype)
    members: dict[str, Value] = {
        "repeats": output.num_elements // period, "period": period, "is_unsigned": source.dtype == "uint8",
        "zero_points": _pair(quantization(source).zero_point), "above": _pair(fixed.above),
        "start": fixed.start - (int(limits.min) << fixed.shift), "shift": fixed.shift,
        "flipped": "0x80808080u" if limits.min < 0 else "0u",
    }  # fmt: skip
    layer = structure("tvm_ext_dsp_prelu_layer", "layer", members)
    body = "\n".join([*layer, "tvm_ext_dsp_prelu(&layer, input, output, slopes);"])
    return replace(
        made, kernel=PRELU.name, function=replace(made.function, body=body, includes=PRELU_INCLUDES),
        constants=(("slopes", fixed.below.reshape(-1, len(ORDER))[:, ORDER].reshape(-1)),),
        instructions=output.num_elements * PRELU_INSTRUCTIONS, ascends=output.num_elements == period,
    )  # fmt: skip


def _pair(number: int) -> str:
    """Return a number twice in the halves of a word."""
    return f"0x{(number & 0xFFFF) * 0x10001:08x}u"


PRELU = Kernel(
    name="qprelu_dsp",
    title="PReLU of a quantized tensor with a slope for each channel",
    operator=QPrelu,
    implement=prelu_implement,
    constraints=(*qprelu.KERNEL.constraints, fours_of_slopes),
)

KERNELS = (QBINARY, PRELU)
