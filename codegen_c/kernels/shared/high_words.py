"""Factors of sums as vectors apply them: to the high words of 64-bit products, which are shifted and rounded once.

A factor is mantissa / 2^shift. The high word of sum * mantissa, shifted right by shift - 32 with rounding, is the
product rounded halves up, as its low word never carries. Halves to even differs only in ties, and a tie needs a sum
with more trailing zeros than most layers' sums have bits. TensorFlow Lite rounds twice: the high word of the doubled
product, then its shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.kernels.shared.requantize import MAX_SHIFT, Requantize
from codegen_c.operators.kinds import Array

WORD_BITS = 32
# Rounding takes a shift of at least one beyond the high word of the product.
LEAST_SHIFT = WORD_BITS + 1
# TensorFlow Lite takes the high word of the doubled product.
DOUBLED_BITS = WORD_BITS - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class HighWords:
    """A `Requantize` as shifts of high words.

    left_shift: by which sums are scaled up first so that every shift reaches beyond the high word.
    halves_even: whether some sum may lie halfway between two results.
    """

    requantize: Requantize
    left_shift: int
    halves_even: bool

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> Self:
        """Rescaling of sums from low to high, int64, one each or one per channel."""
        if requantize.rounding == "tflite":
            return cls(requantize=requantize, left_shift=0, halves_even=False)
        mantissa, shift = requantize.mantissa.astype(np.int64), requantize.shift.astype(np.int64)
        least = int(shift[mantissa > 0].min(initial=LEAST_SHIFT))
        bits = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1)).bit_length()
        zeros = np.array([_trailing_zeros(int(m)) for m in mantissa])
        ties = (mantissa > 0) & (shift - 1 - zeros < bits)
        return cls(requantize=requantize, left_shift=max(0, LEAST_SHIFT - least), halves_even=bool(ties.any()))

    def fits(self, low: Array, high: Array) -> bool:
        """True where sums from low to high can be scaled up; with two roundings, no factor may need that."""
        if self.is_twice and (self.requantize.shift[self.requantize.mantissa > 0] < DOUBLED_BITS).any():
            return False
        largest = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1))
        return largest << self.left_shift < 1 << (WORD_BITS - 1)

    def factors(self) -> tuple[Array, Array]:
        """(multiplier, shift) as the code reads them, int32 each: shifts are negative, of the product's high word."""
        if self.is_twice:
            shift = np.where(self.requantize.mantissa == 0, -1, DOUBLED_BITS - self.requantize.shift.astype(np.int32))
            return self.requantize.mantissa, shift.astype(np.int32)
        shift = self.requantize.shift.astype(np.int64) + self.left_shift
        vanish = (self.requantize.mantissa == 0) | (shift > MAX_SHIFT + 1)
        multiplier = np.where(vanish, 0, self.requantize.mantissa)
        return multiplier.astype(np.int32), np.where(vanish, -1, WORD_BITS - shift).astype(np.int32)

    @property
    def is_twice(self) -> bool:
        """True where it rounds twice, as TensorFlow Lite does."""
        return self.requantize.rounding == "tflite"


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 0
