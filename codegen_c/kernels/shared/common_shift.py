"""Cheaper forms of requantization: high products, high words, and one shift for all channels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.kernels.shared.requantize import MAX_SHIFT, Requantize, quantization
from codegen_c.kernels.shared.requantize_litert import MOST_SHIFT, between
from codegen_c.operators.kinds import Array

# Requantization by high products, for processors whose 64-bit shifts take several instructions.
#
# With shift s >= 33, the rest r = s - 33 and h = floor(sum * mantissa / 2^32), rounding half up is
#
#     floor((sum * mantissa + 2^(s - 1)) / 2^s) = floor((h + 2^r) / 2^(r + 1)) = floor((floor(h / 2^r) + 1) / 2)
#
# because the 32 bits below h cannot carry into it. Half up equals half to even if no product is a tie. A tie requires a
# sum with s - 1 - t trailing zeros, where t is the number of the mantissa's: no sum has them if |sum| < 2^(s - 1 - t).
#
# TensorFlow Lite rounds twice: the high product of the doubled sum, halves up; then the division by 2^(s - 31), here r
# = s - 32, halves away from zero: up after subtracting one if the sum is negative (which changes nothing if that
# product is rounded to zero).

# (2 * 255 + 1) * 2^r and half of an int32's range must fit an int32 together.
MAX_REST = 20


def by_high_products(exact: Requantize, low: Array, high: Array) -> Requantize:
    """Return the requantization by high products if these round as the whole products do, else `exact` itself.

    low, high: bounds of the sums, int64, one pair for each factor (or one for all).
    """
    if exact.rounding in ("tflite_wide", "litert"):
        return exact
    largest = np.maximum(np.abs(low), np.abs(high)).astype(np.int64)
    largest = np.broadcast_to(largest.max() if exact.is_uniform else largest, exact.mantissa.shape)
    pair_of = _with_one_rounding if exact.rounding == "onnx" else _with_two_roundings
    pairs = [pair_of(int(m), int(s), int(b)) for m, s, b in zip(exact.mantissa, exact.shift, largest, strict=True)]
    found = [pair for pair in pairs if pair is not None]
    if len(found) < len(pairs):
        return exact
    mantissa = np.array([m for m, _ in found], dtype=np.int32)
    rest = np.array([r for _, r in found], dtype=np.uint8)
    return replace(exact, mantissa=mantissa, shift=rest, takes_high_products=True)


def _with_one_rounding(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """Return (mantissa, r) if the high product rounds as the whole product does for all sums up to `largest`."""
    if mantissa == 0 or largest * mantissa < 1 << (shift - 1):  # every result is the zero point
        return 0, 0
    trailing_zeros = (mantissa & -mantissa).bit_length() - 1
    no_tie = largest < 1 << max(shift - 1 - trailing_zeros, 0)
    return (mantissa, shift - 33) if 33 <= shift <= 33 + MAX_REST and no_tie else None


def _with_two_roundings(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """Return (mantissa, r) for TensorFlow Lite's roundings: sums can be doubled, and a right shift remains."""
    if mantissa == 0 or (shift >= 32 and largest * mantissa < 1 << (shift - 2)):  # below a half, even after rounding up
        return 0, 0
    return (mantissa, shift - 32) if 32 <= shift <= 32 + MAX_REST and largest < 1 << 30 else None


# Requantization by vectors: factors apply to the high words of 64-bit products, which are shifted and rounded once.
#
# A factor is mantissa / 2^shift. The high word of sum * mantissa, shifted right by shift - 32 with rounding, is the
# product rounded halves up, because its low word never carries. Halves to even differs only in ties, and a tie requires
# a sum with more trailing zeros than most layers' sums have bits. TensorFlow Lite rounds twice: the high word of the
# doubled product, then its shift.

WORD_BITS = 32
# Rounding takes a shift of at least one beyond the high word of the product.
LEAST_SHIFT = WORD_BITS + 1
# TensorFlow Lite takes the high word of the doubled product.
DOUBLED_BITS = WORD_BITS - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class HighWords:
    """A `Requantize` as shifts of high words.

    left_shift: scales sums up so that every shift reaches beyond the high word. halves_even: True if some sum may lie
    halfway between two results.
    """

    requantize: Requantize
    left_shift: int
    halves_even: bool

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> Self:
        """Return the requantization of sums from low to high, int64, one each or one per channel."""
        if requantize.rounding != "onnx":
            return cls(requantize=requantize, left_shift=0, halves_even=False)
        mantissa, shift = requantize.mantissa.astype(np.int64), requantize.shift.astype(np.int64)
        least = int(shift[mantissa > 0].min(initial=LEAST_SHIFT))
        bits = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1)).bit_length()
        zeros = np.array([_trailing_zeros(int(m)) for m in mantissa])
        ties = (mantissa > 0) & (shift - 1 - zeros < bits)
        return cls(requantize=requantize, left_shift=max(0, LEAST_SHIFT - least), halves_even=bool(ties.any()))

    def fits(self, low: Array, high: Array) -> bool:
        """Return True if sums from low to high can be scaled up; with two roundings, no factor may need this.

        False for products in float32, which have no high words.
        """
        if self.requantize.rounding == "litert":
            return False
        if self.is_twice and (self.requantize.shift[self.requantize.mantissa > 0] < DOUBLED_BITS).any():
            return False
        largest = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1))
        return largest << self.left_shift < 1 << (WORD_BITS - 1)

    def factors(self) -> tuple[Array, Array]:
        """Return (multiplier, shift) for the code, int32 each: shifts are negative, of the product's high word."""
        if self.requantize.rounding == "litert":
            return self.requantize.mantissa, np.full(self.requantize.mantissa.shape, -1, np.int32)
        if self.is_twice:
            shift = np.where(self.requantize.mantissa == 0, -1, DOUBLED_BITS - self.requantize.shift.astype(np.int32))
            return self.requantize.mantissa, shift.astype(np.int32)
        shift = self.requantize.shift.astype(np.int64) + self.left_shift
        vanish = (self.requantize.mantissa == 0) | (shift > MAX_SHIFT + 1)
        multiplier = np.where(vanish, 0, self.requantize.mantissa)
        return multiplier.astype(np.int32), np.where(vanish, -1, WORD_BITS - shift).astype(np.int32)

    @property
    def is_twice(self) -> bool:
        """True if it rounds twice, as TensorFlow Lite does."""
        return self.requantize.rounding == "tflite"


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 0


# Requantization in two instructions per sum: one shift for all channels of a layer, which the saturation includes.
#
# With h = floor(sum * multiplier / 2^32) and zero point z, an element is floor((h + (2 z + 1) 2^(n - 1)) / 2^n),
# saturated, with the same n for every channel, so that n is part of the saturating instruction. A multiplier then has
# fewer bits than the mantissa. Elements are a staircase over the sums: a multiplier that has each step between the same
# two sums as the factor itself, ties included, gives the same elements. This module searches for such a multiplier: it
# must lie between two bounds from the sums on either side of each step that sums reach.

SHIFTS = (4, 8)
"""Candidate shifts in this order: few, because layers with the same shift share code."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CommonShift:
    """Requantization of all channels by one shift. multiplier: int32[K]."""

    multiplier: Array
    shift: int
    zero_point: int
    is_unsigned: bool

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array) -> Self | None:
        """Return a form with the same elements as `exact` for all sums from low to high, int64[K]; None if none exists.

        It requires one rounding, halves to even, and the full range of 8 bits as results.
        """
        limits = np.iinfo(exact.output.dtype)
        if exact.rounding != "onnx" or (exact.low, exact.high) != (limits.min, limits.max):
            return None
        zero_point = quantization(exact.output).zero_point
        steps = np.arange(limits.min + 1, limits.max + 1, dtype=np.int64) - zero_point
        mantissa = np.broadcast_to(exact.mantissa, low.shape).astype(np.int64)
        shift = np.broadcast_to(exact.shift, low.shape).astype(np.int64)
        vanishes = np.maximum(np.abs(low), np.abs(high)) * mantissa < np.int64(1) << (shift - 1)
        mantissa = np.where(vanishes, 0, mantissa)
        if (shift[mantissa > 0] > MOST_SHIFT).any():
            return None
        reached = np.clip(_first_sums(steps, mantissa, shift), low[:, None], high[:, None] + 1)
        for common in SHIFTS:
            more = 32 + common - shift
            nearest = mantissa << np.maximum(more, 0) >> np.maximum(-more, 0)
            multiplier = between(((2 * steps - 1) << (common + 31))[None, :], reached, low, high, nearest)
            if multiplier is not None:
                return cls(multiplier=multiplier, shift=common, zero_point=zero_point, is_unsigned=limits.min == 0)
        return None

    @property
    def rounding(self) -> int:
        """The zero point and a half, in the unit of the high product."""
        return (2 * self.zero_point + 1) << (self.shift - 1)

    @property
    def suffix(self) -> str:
        """Suffix of the functions that compute it."""
        return f"{'u8' if self.is_unsigned else 's8'}_{self.shift}"

    def with_more(self, channels: int) -> Self:
        """Return the form with more channels after the others, whose elements are the zero point."""
        return replace(self, multiplier=np.pad(self.multiplier, (0, channels)))

    def factors(self, width: int) -> Array:
        """Return the stored factors, a row for each `width` channels: int32[K / width, width]."""
        return self.multiplier.reshape(-1, width)


def _first_sums(steps: Array, mantissa: Array, shift: Array) -> Array:
    """Return the least sum of each channel whose rounded product reaches each step, int64[K, steps].

    sum * mantissa / 2^shift >= step - 1/2, and strictly more before an odd step, because halves go to the even step.
    """
    bound = ((2 * steps - 1)[None, :] << (np.minimum(shift, MOST_SHIFT)[:, None] - 1)) + steps[None, :] % 2
    reach = -(-bound // np.maximum(mantissa, 1)[:, None])
    never = np.iinfo(np.int64).max
    return np.where(mantissa[:, None] > 0, reach, np.where(steps[None, :] <= 0, -never, never))
