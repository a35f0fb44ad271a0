"""Factors of one shift for all channels, that give every sum of a layer the element its own factor gives it.

`Requantize` rounds sum * factor once or twice, and each channel's factor has a shift of its own. Vectors narrow by one
shift, which is part of the instruction. An element grows with its sum, so two factors agree for all sums if each
element begins at the same one; each of these beginnings bounds the other factor's multiplier from one side. Where
the bounds leave a number, results are those of `Requantize`, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.kernels.shared.beginnings import beginnings
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

# An element is sum * multiplier >> PRODUCT_BITS, rounded by the shift, halves up.
PRODUCT_BITS = 31
# Tried in this order: one shift for most layers of a network lets them share a function.
SHIFTS = (5, 6, 4, 7, 8, 3, 9, 10, 2, 11, 12, 13, 1, 14, 15, 16)


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowFactors:
    """multipliers: int32[K], at least 0. shift: bits that all results lose as they are narrowed, 1 to 16."""

    multipliers: Array
    shift: int

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> NarrowFactors | None:
        """Factors for sums from low to high, int64[K] each; None where elements are limited otherwise than by their
        type, or no multipliers agree."""
        limits = np.iinfo(requantize.output.dtype)
        if limits.bits != 8 or (requantize.low, requantize.high) != (limits.min, limits.max):
            return None
        begins = beginnings(requantize, low, high)
        if begins is None:
            return None
        elements = np.arange(limits.min + 1, limits.max + 1) - quantization(requantize.output).zero_point
        for shift in SHIFTS:
            bound = ((2 * elements - 1) << (PRODUCT_BITS + shift - 1))[:, None]
            multipliers = _multipliers(begins, low, high, bound)
            if multipliers is not None:
                return cls(multipliers=multipliers, shift=shift)
        return None


def _multipliers(begins: Array, low: Array, high: Array, bound: Array) -> Array | None:
    """int32[K] with sum * multiplier >= bound from an element's beginning on, and < bound before it; None where some
    channel has none. bound: int64[elements, 1]."""
    least, most = _bounds(begins, bound, begins <= high)
    before_least, before_most = _bounds(1 - begins, 1 - bound, begins > low)
    lower, upper = np.maximum(least, before_least), np.minimum(most, before_most)
    if (lower > upper).any():
        return None
    return ((lower + upper) // 2).astype(np.int32)


def _bounds(sums: Array, bound: Array, holds: Array) -> tuple[Array, Array]:
    """int64[K] each: least and most multiplier with sum * multiplier >= bound wherever `holds`; 1 to 0 for none."""
    positive, negative = holds & (sums > 0), holds & (sums < 0)
    divisor = np.where(sums == 0, 1, np.abs(sums))
    least = np.where(positive, -(-bound // divisor), 0).max(axis=0, initial=0)
    most = np.where(negative, -bound // divisor, (1 << PRODUCT_BITS) - 1).min(axis=0, initial=(1 << PRODUCT_BITS) - 1)
    never = (holds & (sums == 0) & (bound > 0)).any(axis=0)
    return np.where(never, 1, least), np.where(never, 0, most)
