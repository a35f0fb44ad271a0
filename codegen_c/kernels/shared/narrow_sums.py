"""Factors of sums of two elements that give every pair of bytes the element of the kernel's reference.

There are only 65,536 pairs of bytes, so all are compared. The element of a pair bounds start + first * a + second * b
from both sides; near the real factors, the bounds of all pairs leave an interval for the start, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.requantize import largest_distance, quantization, scale_of
from codegen_c.operators.kinds import QBinary

# Integers that are tried on each side of the real factors.
REACH = 4
_NEAR = sorted(
    ((i, j) for i in range(-REACH, REACH + 1) for j in range(-REACH, REACH + 1)), key=lambda d: d[0] ** 2 + d[1] ** 2
)
_SUM_BITS = 31
_FARTHEST = 1 << 60


@dataclass(frozen=True, kw_only=True)
class NarrowSums:
    """An element is start + first * a + second * b, shifted right and rounded, halves up, then clamped."""

    first: int
    second: int
    start: int
    shift: int


@lru_cache(maxsize=64)
def narrow_sums(operator: QBinary, *, sum_bits: int = _SUM_BITS, factor_bits: int = _SUM_BITS) -> NarrowSums | None:
    """Return the nearest factors of a sum or difference of bytes that agree with the reference; None if none do.

    sum_bits, factor_bits: limits of the magnitude of sums and factors.
    """
    if operator.function == "multiply":
        return None
    a, b = (np.arange(256)[:, None] + np.iinfo(tensor.dtype).min for tensor in operator.inputs)
    b = b.T
    ratios = [scale_of(tensor) / scale_of(operator.output) for tensor in operator.inputs]
    if operator.function == "subtract":
        ratios[1] = -ratios[1]
    zero_point = quantization(operator.output).zero_point
    pairs = zip(ratios, operator.inputs, strict=True)
    span = sum(abs(ratio) * largest_distance(tensor) for ratio, tensor in pairs) + abs(zero_point) + 1
    largest = max(abs(ratio) for ratio in ratios)
    shift = min(sum_bits - 1 - int(np.ceil(np.log2(span))), factor_bits - 1 - int(np.ceil(np.log2(largest))))
    if not 1 <= shift < sum_bits:
        return None
    operands = [x.astype(tensor.dtype) for x, tensor in zip(np.broadcast_arrays(a, b), operator.inputs, strict=True)]
    elements = qbinary.reference(operator, operands)[0].astype(np.int64)
    least = np.where(elements > operator.low, (2 * elements - 1) << (shift - 1), -_FARTHEST)
    most = np.where(elements < operator.high, ((2 * elements + 1) << (shift - 1)) - 1, _FARTHEST)
    for i, j in _NEAR:
        first, second = round(ratios[0] * 2.0**shift) + i, round(ratios[1] * 2.0**shift) + j
        sums = first * a + second * b
        low, high = int((least - sums).max()), int((most - sums).min())
        start = (low + high) // 2
        # Rounding must not carry beyond the bits of a sum.
        if low <= high and int(np.abs(sums + start).max()) + (1 << shift) < 1 << sum_bits:
            return NarrowSums(first=first, second=second, start=start, shift=shift)
    return None
