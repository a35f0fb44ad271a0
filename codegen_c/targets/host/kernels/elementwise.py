"""Kernel for quantized add and subtract of one shape in vectors: 16 elements at a time.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...]. Factors are split into two parts of 16 bits, whose
products with elements are summed in 32 bits each and shifted once; all pairs are tried to verify that every result is
exact. Any rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.layer import shapes, with_rings
from codegen_c.kernels.shared.requantize import scale_of
from codegen_c.operators.kinds import QBinary
from codegen_c.targets.host.kernels.products import SUM_INCLUDES

LAYER = "tvm_ext_host_qbinary_layer"
INSTRUCTIONS = 26
AT_ONCE = 16
HALF = 1 << 15
LEAST_SHIFT, MOST_SHIFT = 17, 38
FACTOR_BITS = 31


@dataclass(frozen=True, kw_only=True)
class ShiftedSum:
    """A sum of two elements as (first * a + second * b + addend) / 2^shift, rounded down, then clamped."""

    first: int
    second: int
    addend: int
    shift: int


def adds(operator: QBinary, target: Target) -> bool:
    """the operator must be a sum or a difference"""
    return operator.function in ("add", "subtract")


def has_one_shift(operator: QBinary, target: Target) -> bool:
    """ratios of input to output scale must be from 2^-15 up to 2^13, and no sum halfway between two results"""
    return adds(operator, target) and shifted_sum(operator) is not None


@lru_cache(maxsize=64)
def shifted_sum(operator: QBinary) -> ShiftedSum | None:
    """Return a sum with one shift that has the exact result for all pairs of elements, or None if there is none."""
    a, b = (np.arange(256, dtype=np.int64) + np.iinfo(t.dtype).min for t in operator.inputs)
    first, second = (grid.ravel() for grid in np.meshgrid(a, b, indexing="ij"))
    pairs = [values.astype(t.dtype) for values, t in zip((first, second), operator.inputs, strict=True)]
    exact = qbinary.reference(operator, pairs)[0].astype(np.int64)
    ratios = [scale_of(t) / scale_of(operator.output) for t in operator.inputs]
    shift = min(MOST_SHIFT, FACTOR_BITS - math.frexp(max(ratios))[1])
    factors = [round(math.ldexp(ratio, shift)) for ratio in ratios]
    factors[1] *= -1 if operator.function == "subtract" else 1
    if (
        shift < LEAST_SHIFT
        or min(ratios) < 1 / HALF
        or not all(-HALF <= _parts(factor)[0] < HALF for factor in factors)
    ):
        return None
    sums = first * factors[0] + second * factors[1]
    # Every result above the least one bounds the addend from below, and every one below the largest from above. Results
    # that are all alike leave a side without a bound: one from the sums' own range keeps them within 32 bits.
    least = ((exact << shift) - sums)[exact > operator.low].max(initial=(operator.low << shift) - sums.max())
    most = (((exact + 1) << shift) - 1 - sums)[exact < operator.high].min(
        initial=((operator.high + 1) << shift) - 1 - sums.min()
    )
    if least > most:
        return None
    return ShiftedSum(first=factors[0], second=factors[1], addend=int(least + most) // 2, shift=shift)


def _parts(factor: int) -> tuple[int, int]:
    """(high, low) with factor = high * 2^16 + low, low from -2^15 to 2^15 - 1."""
    high = (factor + HALF) >> 16
    return high, factor - (high << 16)


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    portable, sums = qbinary.implement(operator, target, stored), shifted_sum(operator)
    assert sums is not None, "has_one_shift is a constraint"
    (first_high, first_low), (second_high, second_low), (addend_high, addend_low) = map(
        _parts, (sums.first, sums.second, sums.addend)
    )
    members: dict[str, Value] = {
        "layer": qbinary.layer_members(operator, stored),
        "high": f"{{{first_high}, {second_high}}}", "low": f"{{{first_low}, {second_low}}}",
        "addend": f"{{{addend_high}, {addend_low}}}", "shift": sums.shift - 16,
    }  # fmt: skip
    rings, layer = with_rings(LAYER, stored, ("layer.first", "layer.second"), output="layer.output")
    rows = "row_begin, row_end" if portable.spatial else "0, 1"
    body = "\n".join([*rings, f"tvm_ext_host_qbinary({layer}, input0, input1, output, {rows});"])
    includes = ("tvm_ext_host_qbinary.h", *SUM_INCLUDES, *qbinary.INCLUDES)
    return replace(
        portable,
        kernel=KERNEL.name,
        function=replace(portable.function, body=body, helpers=shapes(LAYER, members), includes=includes),
        instructions=-(-operator.output.num_elements // AT_ONCE) * INSTRUCTIONS,
    )


KERNEL = Kernel(
    name="qbinary_host",
    title="Quantized add and subtract of tensors of one shape, 16 elements at a time",
    operator=QBinary,
    implement=implement,
    constraints=(adds, *qbinary.QBINARY.constraints, has_one_shift),
)
