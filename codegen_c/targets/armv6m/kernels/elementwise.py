"""Kernel for quantized add and subtract of one shape on Armv6-M, by products of 32 bits.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. An element is

    (a * factor_a + b * factor_b + start) / 2^n, rounded down and limited

where the start contains the zero points and half a step. The factors have as many bits as 32 bits hold. They are fewer
than the exact sum needs, so the kernel is used only if some start gives the bytes of the portable kernel for each of
the 65536 pairs of elements, in any rounding. The portable kernel has products of 64 bits, which a library computes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, loop
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.requantize import INCLUDES, scale_of
from codegen_c.operators.kinds import Array, QBinary

ELEMENT_INSTRUCTIONS = 25
"""Modelled instructions of an element and its loop."""
SHIFTS = (24, 23, 22, 21, 20, 19, 18)
"""Candidate shifts n: the largest one for which sums fit 32 bits has the most exact factors."""
NEIGHBOURS = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
"""Distances from the nearest factors that are tried."""


@dataclass(frozen=True, kw_only=True)
class SumFormula:
    """The constants of the formula above. start: so that results count from the least element."""

    factors: tuple[int, int]
    start: int
    shift: int


def is_exact(operator: QBinary, target: Target) -> bool:
    """sums of two products in 32 bits must give the portable kernel's bytes for every pair of elements"""
    return formula_of(operator) is not None


def formula_of(operator: QBinary) -> SumFormula | None:
    """Return the constants that give the reference's bytes for every pair of elements, if there are any."""
    ratios = [scale_of(tensor) / scale_of(operator.output) for tensor in operator.inputs]
    a, b, expected = qbinary.every_pair(operator)
    elements = expected.astype(np.int64) - operator.low
    sign = -1 if operator.function == "subtract" else 1
    for shift in SHIFTS:
        nearest = [round(ratio * 2.0**shift) for ratio in ratios]
        if sum(nearest) << 7 >= 1 << 31:
            continue  # products would not fit 32 bits
        for near_a, near_b in NEIGHBOURS:
            factors = (nearest[0] + near_a, sign * (nearest[1] + near_b))
            start = _start(a * factors[0] + b * factors[1], elements, shift, operator.high - operator.low)
            if start is not None:
                return SumFormula(factors=factors, start=start, shift=shift)
    return None


def _start(products: Array, elements: Array, shift: int, most: int) -> int | None:
    """Return a start with which all products give their elements, which are from 0 to `most`; None if none does."""
    far = np.int64(1) << 40
    at_least = np.where(elements > 0, (elements << shift) - products, -far).max()
    at_most = np.where(elements < most, ((elements + 1) << shift) - 1 - products, far).min()
    if at_least > at_most:
        return None
    start = int(at_least + at_most) // 2 if -far < at_least and at_most < far else int(max(at_least, -far // 2))
    fits = max(abs(int(products.max()) + start), abs(int(products.min()) + start), abs(start)) < 1 << 31
    return start if fits and np.abs(products).max() < 1 << 31 else None


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    return qbinary.over_elements(
        operator, target, stored, kernel=KERNEL.name, run=_run,
        helpers=_helper(operator), includes=INCLUDES, element_instructions=ELEMENT_INSTRUCTIONS,
    )  # fmt: skip


def _helper(operator: QBinary) -> str:
    """Return `$_apply(a, b)`, which computes one element. One comparison finds elements out of range."""
    formula = formula_of(operator)
    assert formula is not None, "refused before"
    ctype, (first, second) = C_TYPES[operator.output.dtype], formula.factors
    real_first, real_second = (abs(factor) / 2.0**formula.shift for factor in formula.factors)
    sign = "-" if operator.function == "subtract" else "+"
    lines = [
        f"/* {real_first:.6g} * a {sign} {real_second:.6g} * b, less the zero points and the least element */",
        f"int32_t value = ((a * {first}) + (b * {second}) + {formula.start}) >> {formula.shift};",
        f"if ((uint32_t)value > {operator.high - operator.low}u) {{",
        block([f"value = value < 0 ? 0 : {operator.high - operator.low};"]),
        "}",
        f"return ({ctype})(value + {operator.low});",
    ]
    return f"static inline {ctype} $_apply(int32_t a, int32_t b)\n{{\n{block(lines)}\n}}\n"


def _run(count: int) -> list[str]:
    return loop("i", count, ["output_row[i] = $_apply(input0_row[i], input1_row[i]);"])


KERNEL = Kernel(
    name="qbinary_armv6m",
    title="Quantized add and subtract of tensors of one shape",
    operator=QBinary,
    implement=implement,
    constraints=(qbinary.is_sum, *qbinary.QBINARY.constraints, is_exact),
)
