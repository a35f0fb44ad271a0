"""Factors as float32 that give every sum of a layer its exact element, and the sum at which each element begins."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

# The sum at which each element of a layer begins: elements grow with sums, so these sums determine every element.
#
# Any other monotonic map from sums to elements that agrees at these sums and at the sums just below them gives all sums
# the same elements.

# Tolerance in sums between the begin of an element and its estimate from the real factor.
SLACK = 2


def beginnings(requantize: Requantize, low: Array, high: Array) -> Array | None:
    """Return the least sum from low to high that gives each element or one above it, else high + 1: int64[elements, K].

    Elements are those above the least one that `requantize` gives. low, high: int64[K]. None if a factor is not above
    0, or if sums begin an element too far from the guess.
    """
    elements = np.arange(requantize.low + 1, requantize.high + 1)[:, None]
    real = np.broadcast_to(requantize.real_factors, low.shape)
    if (real <= 0).any():
        return None
    size = 1 / real
    guess = (elements - quantization(requantize.output).zero_point - 0.5) * size
    first = np.clip(np.ceil(guess), low - SLACK, high + 1 + SLACK).astype(np.int64) - SLACK
    begins = np.full(first.shape, np.iinfo(np.int64).max)
    for sums in (first + step for step in range(2 * SLACK, -1, -1)):
        inside = np.clip(sums, low, high)
        reached = (requantize.run(inside) >= elements) & (sums <= high)
        begins = np.where(reached, inside, begins)
    begins = np.minimum(begins, high + 1)
    below, above = np.maximum(begins - 1, low), np.minimum(begins, high)
    is_least = (begins == low) | (requantize.run(below) < elements)
    is_reached = (begins > high) | (requantize.run(above) >= elements)
    # If no sum around the guess reaches the element, no sum at all may reach it.
    return begins if bool((is_least & is_reached).all()) else None


# Requantization by float32 factors that give every sum of a layer the element of its exact factor.
#
# A sum as float, times a factor plus an offset, rounded once and then to an integer, grows with the sum; so it agrees
# with the exact requantization for all sums if each element begins at the same sum. Floats next to the real factor and
# to the zero point are tried; a candidate is used only if this is proved.

# Distances from the float nearest to a real factor, and offsets from the zero point, in the order of trials.
STEPS = (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8, -8)
SHIFTS = (*STEPS, 9, -9, 10, -10, 11, -11, 12, -12)
SHIFT = 2.0**-17
# Below the first limit sums are exact as float32; with factors above the second, products are exact as float64.
MOST_SUM, LEAST_FACTOR = 1 << 24, 2.0**-14
LARGEST = 1 << 31


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatFactors:
    """Requantization by floats: an element is sum * factor + offset, rounded to float32, then to an integer, clamped.

    Halves are rounded to even. factors, offsets: float32[K].
    """

    factors: Array
    offsets: Array

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> FloatFactors | None:
        """Return factors for sums from low to high, int64[K] each; None if some channel has none."""
        begins = None if requantize.rounding == "tflite" else beginnings(requantize, low, high)
        if begins is None:
            return None
        real = np.broadcast_to(requantize.real_factors, low.shape)
        largest = np.maximum(np.abs(low), np.abs(high))
        if (largest >= MOST_SUM).any() or (real < 2 * LEAST_FACTOR).any() or (2 * largest * real >= LARGEST).any():
            return None
        nearest, zero_point = real.astype(np.float32), quantization(requantize.output).zero_point
        proof = _Proof(begins=begins, low=low, high=high, elements=np.arange(requantize.low + 1, requantize.high + 1))
        return proof.found(nearest, zero_point)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Proof:
    """Check of candidate factors. begins: int64[elements, K]. low, high: int64[K]. elements: int64[elements]."""

    begins: Array
    low: Array
    high: Array
    elements: Array

    def found(self, nearest: Array, zero_point: int) -> FloatFactors | None:
        """Return factors near `nearest`, float32[K], and offsets that give every element; None if there are none."""
        factors, offsets = nearest.copy(), np.full(nearest.shape, zero_point, dtype=np.float32)
        left = np.arange(len(nearest))
        for shift, step in product(SHIFTS, STEPS):
            tried = (nearest[left].view(np.int32) + np.int32(step)).view(np.float32)
            offset = np.float32(zero_point + shift * SHIFT)
            holds = self._holds(left, tried, float(offset))
            factors[left[holds]], offsets[left[holds]] = tried[holds], offset
            left = left[~holds]
            if not left.size:
                return FloatFactors(factors=factors, offsets=offsets)
        return None

    def _holds(self, channels: Array, factors: Array, offset: float) -> Array:
        begins, elements = self.begins[:, channels], self.elements[:, None]
        reaches = (begins > self.high[channels]) | (_elements(begins, factors, offset) >= elements)
        stays = (begins <= self.low[channels]) | (_elements(begins - 1, factors, offset) < elements)
        return np.asarray((reaches & stays).all(axis=0))


def _elements(sums: Array, factors: Array, offset: float) -> Array:
    """Return exact products and their exact sums with the offset in float64, rounded once to float32."""
    return np.rint((sums * factors.astype(np.float64) + offset).astype(np.float32))
