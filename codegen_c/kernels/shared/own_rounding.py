"""Any requantization in two instructions per sum: one shift for all channels, and an addend of each channel.

With h = floor(2^b (sum + n) multiplier / 2^32), an element is floor((h + rounding) / 2^(c + b)), saturated. c is the
same for all channels of a layer, so that it is part of the saturating instruction; 2^b is the multiple in which a
channel's sums come. n is added to the initial sum, which costs nothing.

Elements are a staircase over the sums, whatever the rounding: it is enough that each step lies between the same two
sums. With C = 2^b n multiplier + 2^32 rounding, step e begins at the sum t if

    2^b t multiplier + C >= e 2^(32 + c + b) > 2^b (t - 1) multiplier + C

All steps together bound C from both sides. The rounding alone moves C by 2^32, which is several sums; n moves it by a
multiple of the multiplier, and modulo 2^32 these are spread evenly, so that a small n hits the bounds.

TensorFlow Lite's two roundings have such a form wherever negative sums are clamped: together they add 1/2 + 2^-(r + 1)
and round down once (`two_roundings.py`). Where negative sums are not clamped there is none, because halves below zero
lie a step of the first rounding away from those above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

SHIFTS = (4, 8)
"""Candidate shifts c: few, because layers with the same shift share code. By 4, factors up to 1/32 are possible; by 8,
multipliers have more bits."""
MOST_ADDED = 1 << 20
"""The largest n: sums stay far from the ends of an int32."""
MOST_BITS = 8
"""The largest power of two by which sums are scaled for the sake of their multiplier: weights then fit 16 bits."""
NEIGHBOURS = (0, 1, -1, 2, -2)
"""Multipliers beside the nearest one that are tried."""
_SUMS_BESIDE = 4
_WORD = 1 << 32


@dataclass(frozen=True, kw_only=True, eq=False)
class OwnRounding:
    """Requantization of all channels by one shift.

    added: int64[K], n; bits: int64[K], b; multiplier, rounding: int32[K].
    """

    added: Array
    bits: Array
    multiplier: Array
    rounding: Array
    shift: int
    is_unsigned: bool

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array, scale_bits: Array | None = None) -> Self | None:
        """Return a form with the same elements as `exact` for all sums from low to high, int64[K]; None if none exists.

        It requires the full range of 8 bits as results. scale_bits: int64[K], b. Without it, `bits` are those that
        large factors need, and an element is floor((h + rounding) / 2^c) in all channels: their c is b smaller.
        """
        limits = np.iinfo(exact.output.dtype)
        if exact.takes_high_products or (exact.low, exact.high) != (limits.min, limits.max):
            return None
        if exact.rounding == "tflite" and not exact.clamps_negatives:
            return None  # as the head of this file says
        factors = np.broadcast_to(exact.real_factors, low.shape)
        steps = np.arange(limits.min + 1, limits.max + 1, dtype=np.int64)
        reached = _first_sums(exact, factors, low, high, steps)
        if reached is None:
            return None
        for shift in SHIFTS:
            bits = _needed_bits(factors, shift) if scale_bits is None else scale_bits
            own = shift - bits if scale_bits is None else np.full_like(bits, shift)
            found = None if bits.max() > MOST_BITS else _fitted(factors, steps, reached, low, high, own, bits)
            if found is not None:
                added, multiplier, rounding = found
                return cls(
                    added=added, bits=bits, multiplier=multiplier, rounding=rounding, shift=shift,
                    is_unsigned=limits.min == 0,
                )  # fmt: skip
        return None

    @property
    def suffix(self) -> str:
        """Suffix of the functions that compute it."""
        return f"{'u8' if self.is_unsigned else 's8'}_{self.shift}"

    def factors(self, width: int) -> Array:
        """Return the stored factors, a row for each `width` channels: multiplier and rounding of one after the other.

        int32[K / width, 2 * width].
        """
        return np.stack([self.multiplier, self.rounding], axis=1).reshape(-1, 2 * width)


def _needed_bits(factors: Array, shift: int) -> Array:
    """Return the least bits by which sums are scaled so that their multipliers fit, int64[K]."""
    _, exponents = np.frexp(factors)
    bits = np.where(factors > 0, np.maximum(exponents + shift + 1, 0), 0).astype(np.int64)
    return bits + (np.ldexp(factors, 32 + shift - bits) >= (1 << 31) - 4)


def _first_sums(exact: Requantize, factors: Array, low: Array, high: Array, steps: Array) -> Array | None:
    """Return the least sum from low to high whose element reaches each step, else high + 1: int64[K, steps].

    None if some step is farther from its real place than roundings bring it.
    """
    channels = np.arange(len(low))[:, None]
    lowest, highest = low[:, None], high[:, None]
    zero_point = quantization(exact.output).zero_point
    place = np.where(
        factors[:, None] > 0,
        (steps[None, :] - zero_point - 0.5) / np.where(factors > 0, factors, 1.0)[:, None],
        np.where(steps[None, :] > zero_point, np.inf, -np.inf),
    )
    place = np.clip(place, lowest - _SUMS_BESIDE, highest + _SUMS_BESIDE)
    margin = _SUMS_BESIDE + (np.abs(place) * 2.0**-20).astype(np.int64)  # of factors in float32
    below = np.clip(np.floor(place).astype(np.int64) - margin, lowest - 1, highest)
    above = np.clip(np.ceil(place).astype(np.int64) + margin, lowest, highest + 1)
    index = np.broadcast_to(channels, below.shape)
    wanted = np.broadcast_to(steps[None, :], below.shape)

    def reaches(sums: Array) -> Array:
        return exact.run(sums, index).astype(np.int64) >= wanted

    while (above - below > 1).any():
        middle = (below + above) // 2
        open_ones, here = above - below > 1, reaches(middle)
        above = np.where(open_ones & here, middle, above)
        below = np.where(open_ones & ~here, middle, below)
    right = (above > highest) | reaches(np.minimum(above, highest))
    left = (below < lowest) | ~reaches(np.maximum(below, lowest))
    return above if (right & left).all() else None


def _fitted(
    factors: Array, steps: Array, reached: Array, low: Array, high: Array, shift: Array, scale_bits: Array
) -> tuple[Array, Array, Array] | None:
    """Return (added, multiplier, rounding) of each channel with these steps, or None."""
    nearest = np.rint(np.ldexp(factors, 32 + shift)).astype(np.int64)
    if (nearest >= (1 << 31) - 3).any():
        return None
    added, multiplier, rounding = (np.zeros_like(low) for _ in range(3))
    left = np.ones(low.shape, bool)
    for more in NEIGHBOURS:
        chosen = np.flatnonzero(left)
        if not len(chosen):
            break
        tried = np.maximum(nearest[chosen] + more, 0)
        bounds = _bounds(
            tried << scale_bits[chosen], steps, reached[chosen], low[chosen], high[chosen], (shift + scale_bits)[chosen]
        )
        n, up, fits = _offsets(tried, *bounds, scale_bits[chosen])
        for array, values in ((added, n), (multiplier, tried), (rounding, up)):
            array[chosen] = np.where(fits, values, array[chosen])
        left[chosen[fits]] = False
    largest = np.maximum(np.abs(low), np.abs(high)) + added
    if left.any() or (largest << scale_bits >= 1 << 31).any():
        return None
    return added, multiplier.astype(np.int32), rounding.astype(np.int32)


def _bounds(product: Array, steps: Array, reached: Array, low: Array, high: Array, shift: Array) -> tuple[Array, Array]:
    """Return the least and the greatest C with which every step lies where it should, int64[K] each.

    product: of a sum, 2^b multiplier. shift: c + b.
    """
    begin = steps[None, :] << (32 + shift)[:, None]
    product = product[:, None]
    far = np.int64(1) << 62
    least = np.where(reached <= high[:, None], begin - product * reached, -far).max(axis=1)
    most = np.where(reached > low[:, None], begin - product * (reached - 1) - 1, far).min(axis=1)
    return least, most


def _offsets(multiplier: Array, least: Array, most: Array, scale_bits: Array) -> tuple[Array, Array, Array]:
    """Return (n, rounding, whether they exist) of each channel: the smallest n with a C from least to most."""
    columns = ((multiplier << scale_bits).tolist(), least.tolist(), most.tolist())
    number = [first_in_window(step, a, b, _WORD) if a <= b else -1 for step, a, b in zip(*columns, strict=True)]
    n = np.array(number, np.int64)
    rounding = (most - (multiplier << scale_bits) * np.maximum(n, 0)) >> 32
    return np.maximum(n, 0), rounding, (n >= 0) & (n <= MOST_ADDED) & (np.abs(rounding) < 1 << 30)


def first_in_window(step: int, least: int, most: int, modulus: int) -> int:
    """Return the least n >= 0 for which some number from least to most is n * step modulo `modulus`; -1 for none."""
    if most - least >= modulus - 1:
        return 0
    first = least % modulus
    last = first + most - least
    return 0 if last >= modulus else _first_multiple(step % modulus, modulus, first, last)


def _first_multiple(step: int, modulus: int, first: int, last: int) -> int:
    """Return the least n >= 0 with first <= n * step mod modulus <= last < modulus, or -1.

    Multiples go up by `step` until they pass the modulus. If none of the first round is in the window, the number of
    rounds is the same question for a modulus of `step`: Euclid's algorithm, in as many turns. A step above half the
    modulus goes down in place of up, so that each turn halves the modulus.
    """
    if first == 0:
        return 0
    if 2 * step > modulus:
        step, first, last = modulus - step, modulus - last, modulus - first
    if step == 0:
        return -1
    n = -(-first // step)
    if n * step <= last:
        return n
    rounds = _first_multiple(-modulus % step, step, first % step, last % step)
    return -1 if rounds < 0 else -(-(first + rounds * modulus) // step)
