"""Requantization in two instructions a sum: one shift for all channels of a layer, which saturation does on the side.

With h = floor(sum * multiplier / 2^32) and zero point z, an element is floor((h + (2 z + 1) 2^(n - 1)) / 2^n),
saturated, with n the same for every channel, so that it stands in the instruction that saturates. A multiplier then
has fewer bits than the mantissa. Elements are a staircase over the sums;
a multiplier that has each step between the same two sums as the factor itself, ties included, gives the same elements,
and is looked for here: it must lie between bounds, two from the sums on either side of each step that sums reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

SHIFTS = (4, 8)
"""Shifts that are tried, in this order: few, as the code of each is shared by the layers that have it."""
MOST = (1 << 31) - 1
MOST_SHIFT = 52
"""Largest shift of a factor that 64 bits hold with any step in front of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CommonShift:
    """Requantization of all channels by one shift. multiplier: int32[K]."""

    multiplier: Array
    shift: int
    zero_point: int
    is_unsigned: bool

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array) -> Self | None:
        """The same elements as `exact` for every sum from low to high, int64[K]; None where there are none such.

        It needs one rounding, halves to even, and all numbers of 8 bits as elements.
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
            multiplier = _between((2 * steps - 1) << (common + 31), reached, low, high, nearest)
            if multiplier is not None:
                return cls(multiplier=multiplier, shift=common, zero_point=zero_point, is_unsigned=limits.min == 0)
        return None

    @property
    def rounding(self) -> int:
        """The zero point and a half, in the unit of the high product."""
        return (2 * self.zero_point + 1) << (self.shift - 1)

    @property
    def suffix(self) -> str:
        """Suffix of the functions that do it."""
        return f"{'u8' if self.is_unsigned else 's8'}_{self.shift}"


def _first_sums(steps: Array, mantissa: Array, shift: Array) -> Array:
    """The least sum of each channel whose rounded product reaches each step, int64[K, steps].

    sum * mantissa / 2^shift >= step - 1/2, and more than that before an odd step, as halves go to the even one.
    """
    bound = ((2 * steps - 1)[None, :] << (np.minimum(shift, MOST_SHIFT)[:, None] - 1)) + steps[None, :] % 2
    reach = -(-bound // np.maximum(mantissa, 1)[:, None])
    never = np.iinfo(np.int64).max
    return np.where(mantissa[:, None] > 0, reach, np.where(steps[None, :] <= 0, -never, never))


def _between(bound: Array, reached: Array, low: Array, high: Array, nearest: Array) -> Array | None:
    """Multipliers near to `nearest` by which each step lies between the sums reached - 1 and reached.

    bound: of products, int64[steps]. A step that is outside of [low, high] bounds on one side alone.
    """
    least, most = np.zeros_like(low), np.full_like(low, MOST)
    possible = np.ones(low.shape, bool)
    for sums, used, limit, is_least in (
        (reached, reached <= high[:, None], bound[None, :], True),  # sum * multiplier >= limit
        (reached - 1, reached > low[:, None], bound[None, :] - 1, False),  # sum * multiplier <= limit
    ):
        divisor = np.where(sums == 0, 1, sums)
        below, above = limit // divisor, -(-limit // divisor)
        raises = used & ((sums > 0) if is_least else (sums < 0))
        lowers = used & ((sums < 0) if is_least else (sums > 0))
        least = np.maximum(least, np.where(raises, above, 0).max(axis=1))
        most = np.minimum(most, np.where(lowers, below, MOST).min(axis=1))
        fails = (limit > 0) if is_least else (limit < 0)
        possible &= ~(used & (sums == 0) & fails).any(axis=1)
    if not (possible & (least <= most)).all():
        return None
    return np.clip(nearest, least, most).astype(np.int32)
