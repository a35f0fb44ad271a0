"""TensorFlow Lite's two roundings in registers: by a shift of each channel, or by scaled sums and one shift for all.

A sum times mantissa / 2^(31 + r) is the high product of the doubled sum, halves up, divided by 2^r, halves away from
zero. For results above zero, and r of at least 1, that is

    floor((floor((2 sum * mantissa + 2^31) / 2^32) + 2^(r - 1)) / 2^r)
    = floor((2 sum * mantissa + 2^31 + 2^(r + 31)) / 2^(32 + r))

A multiplier of fewer bits, as `common_shift.py` finds one for a single rounding, does not give the same: the first half
is worth between a half and one step of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.kernels.shared.common_shift import by_high_products
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoRoundings:
    """Requantization of all channels by rounded high products. multiplier: int32[K]; shift: uint8[K], r - 1.

    is_signed: negative sums reach elements above the least one, so that their halves matter.
    """

    multiplier: Array
    shift: Array
    zero_point: int
    is_signed: bool

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array) -> Self | None:
        """Return a form with the same elements as `exact` for all sums from low to high, int64[K]; None if none exists.

        It requires TensorFlow Lite's roundings, and the full range of int8 as results.
        """
        found = by_high_products(exact, low, high)
        if not (_is_whole_int8(exact) and found.takes_high_products):
            return None
        return cls(
            multiplier=np.broadcast_to(found.mantissa, low.shape),
            shift=np.broadcast_to(found.shift, low.shape),
            zero_point=quantization(exact.output).zero_point,
            is_signed=not exact.clamps_negatives,
        )

    @property
    def rounding(self) -> int:
        """The zero point and a half, in halves of an element."""
        return 2 * self.zero_point + 1

    @property
    def suffix(self) -> str:
        """Suffix of the functions that compute it."""
        return "s8_twice_signed" if self.is_signed else "s8_twice"

    def with_more(self, channels: int) -> Self:
        """Return the form with more channels after the others, whose elements are the zero point."""
        more = (0, channels)
        return replace(self, multiplier=np.pad(self.multiplier, more), shift=np.pad(self.shift, more))

    def factors(self, width: int) -> Array:
        """Return the stored factors, a row for each `width` channels: multipliers, then a word of shifts.

        int32[K / width, width + 1]. width: at most 4, the bytes of the word.
        """
        multiplier = self.multiplier.reshape(-1, width)
        shifts = np.zeros((len(multiplier), 4), np.uint8)
        shifts[:, :width] = self.shift.reshape(-1, width)
        return np.concatenate([multiplier, shifts.view("<i4")], axis=1)


def _is_whole_int8(exact: Requantize) -> bool:
    """Return True for TensorFlow Lite's roundings and the full range of int8 as results."""
    limits = np.iinfo(np.int8)
    return (
        exact.rounding == "tflite"
        and exact.output.dtype == "int8"
        and (exact.low, exact.high) == (limits.min, limits.max)
    )


# All channels can have one shift if weights and biases have bits to spare, as depthwise weights of 16 bits have.
#
# The sums of a channel are multiplied by 2^n with n = c - r + 1, where c is the shift of all channels. Then the
# fraction above is, for n >= 2,
#
#     floor((floor(2^n sum * mantissa / 2^32) + 2^(n - 2) + 2^(c - 1)) / 2^c)
#
# A channel with a larger r gets a multiplier of fewer bits than its mantissa, if that gives the same elements for all
# sums. Elements are a staircase over the sums, so it is enough to look at the sums on either side of each step.

SHIFTS = (10, 9, 8, 11, 12, 7, 6, 5, 4)
"""Candidate shifts c in this order: those of most layers first, because layers with the same shift share code."""
LEAST_BITS = 2
WEIGHT_BITS = 8
"""Bits by which an int8 weight can be scaled in 16 bits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScaledSums:
    """Requantization of sums that come 2^bits times, by one shift of all channels.

    bits: int64[K]; multiplier, rounding: int32[K], of the high product.
    """

    bits: Array
    multiplier: Array
    rounding: Array
    shift: int

    is_unsigned = False

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array, shifts: tuple[int, ...] = SHIFTS) -> Self | None:
        """Return a form with the same elements as `exact` for all sums from low to high, int64[K]; None if none exists.

        It requires TensorFlow Lite's roundings, all of int8 as results, and a clamp of sums below zero: halves of
        these are rounded down. shifts: those that the code supports.
        """
        found = by_high_products(exact, low, high)
        if not (_is_whole_int8(exact) and found.takes_high_products and exact.clamps_negatives):
            return None
        mantissa = np.broadcast_to(found.mantissa, low.shape).astype(np.int64)
        rest = np.broadcast_to(found.shift, low.shape).astype(np.int64) + 1
        room = 30 - np.array([int(bound).bit_length() for bound in np.maximum(np.abs(low), np.abs(high))])
        reached = np.clip(_first_sums(mantissa, rest), low[:, None], high[:, None] + 1)
        for shift in shifts:
            bits = np.clip(shift - rest + 1, LEAST_BITS, WEIGHT_BITS)
            bits = np.where(mantissa == 0, 0, bits)
            if (bits > room).any() or (bits < shift - rest + 1)[mantissa > 0].any():
                continue  # sums, weights or mantissas would have too many bits
            less = bits - (shift - rest + 1)  # bits that a multiplier lacks
            form = cls._proven(shift, bits, mantissa, less, reached, low, high)
            if form is not None:
                return form
        return None

    @classmethod
    def _proven(
        cls, shift: int, bits: Array, mantissa: Array, less: Array, reached: Array, low: Array, high: Array
    ) -> Self | None:
        """Return the form whose elements step where those of two roundings do, or None.

        less: bits that the multipliers lack. reached: least sums of each step, int64[K, steps].
        """
        zero_point, steps = np.iinfo(np.int8).min, np.arange(1, 256, dtype=np.int64)
        half = (2 * zero_point + 1) << (shift - 1)
        multiplier, rounding = np.zeros_like(mantissa), np.full_like(mantissa, half)
        proven = mantissa == 0
        for up, more in ((0, 1), (0, 0), (1, 0), (1, 1)):
            tried = (mantissa + (up << less) - up >> less) if up else mantissa >> less
            added = half + np.where(less > 0, more, 1 << np.maximum(bits - LEAST_BITS, 0))

            def elements(sums: Array, tried: Array = tried, added: Array = added) -> Array:
                return (((sums << bits[:, None]) * tried[:, None] >> 32) + added[:, None] >> shift) - zero_point

            above = (elements(reached) >= steps) | (reached > high[:, None])
            below = (elements(reached - 1) < steps) | (reached <= low[:, None])
            same = (above & below).all(axis=1) & ~proven
            multiplier, rounding = np.where(same, tried, multiplier), np.where(same, added, rounding)
            proven |= same
        if not proven.all():
            return None
        return cls(bits=bits, multiplier=multiplier.astype(np.int32), rounding=rounding.astype(np.int32), shift=shift)

    @property
    def suffix(self) -> str:
        """Suffix of the functions that compute it."""
        return f"s8_{self.shift}"

    def factors(self) -> Array:
        """Return the stored factors, a row for each channel: multiplier and rounding, int32[K, 2]."""
        return np.stack([self.multiplier, self.rounding], axis=1)


def _first_sums(mantissa: Array, rest: Array) -> Array:
    """Return the least sum of each channel that two roundings bring to each step from 1 to 255, int64[K, steps]."""
    steps = np.arange(1, 256, dtype=np.int64)[None, :]
    product = (2 * steps - 1) << (rest[:, None] - 1)
    reach = -((-(product << 31) + (1 << 30)) // np.maximum(mantissa, 1)[:, None])
    return np.where(mantissa[:, None] > 0, reach, np.iinfo(np.int64).max >> 1)
