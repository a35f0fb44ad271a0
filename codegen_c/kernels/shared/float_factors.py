"""Factors as float32 that give every sum of a layer its exact element, and the sum at which each element begins."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

# Each element of a layer begins at a sum. Elements grow with sums, so these sums determine every element.
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
# with the exact requantization for all sums if each element begins at the same sum. Every element bounds the offset
# from both sides: the first sum of the element must reach it, and the sum below must not. Factors next to the real one
# are tried with an offset in the middle of the bounds; a candidate is used only if this is proved.
#
# TensorFlow Lite rounds halves of negative results away from zero, and its first rounding moves positive and negative
# results in the same direction. Sums below zero may therefore have an offset of their own.

# Distances from the float nearest to a real factor, in the order of trials.
STEPS = tuple(step * sign for step in range(33) for sign in ((1, -1) if step else (1,)))
# Products of a factor above the limit and a sum are exact as float64, and so are their sums with an offset.
LEAST_FACTOR = 2.0**-20
LARGEST = 1 << 31


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatFactors:
    """Requantization by floats: an element is sum * factor + offset, rounded to float32, then to an integer, clamped.

    Sums are rounded to float32 first. Halves are rounded to even. factors, offsets: float32[K]. negative_offsets: of
    sums below zero.
    """

    factors: Array
    offsets: Array
    negative_offsets: Array

    @property
    def has_signs(self) -> bool:
        """True if sums below zero have other offsets."""
        return not np.array_equal(self.offsets, self.negative_offsets)

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> FloatFactors | None:
        """Return factors for sums from low to high, int64[K] each; None if some channel has none."""
        begins = beginnings(requantize, low, high)
        if begins is None:
            return None
        real = np.broadcast_to(requantize.real_factors, low.shape)
        largest = np.maximum(np.abs(low), np.abs(high))
        if (real < LEAST_FACTOR).any() or (2 * largest * real >= LARGEST).any():
            return None
        problem = _Elements(begins=begins, low=low, high=high, last=requantize.high)
        if requantize.rounding != "tflite" or requantize.clamps_negatives:
            found = _fitted(real, (problem,))
            return None if found is None else cls(factors=found[0], offsets=found[1], negative_offsets=found[1])
        found = _fitted(real, (problem.within(0, LARGEST), problem.within(-LARGEST, -1)))
        return None if found is None else cls(factors=found[0], offsets=found[1], negative_offsets=found[2])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Elements:
    """The sums at which elements begin. begins: int64[elements, K]. low, high: int64[K]. last: the last element.

    Where no sum lies within the bounds, `high` is below `low`.
    """

    begins: Array
    low: Array
    high: Array
    last: int

    def within(self, least: int, most: int) -> _Elements:
        """Return the same elements for the sums from `least` to `most` only."""
        low, high = np.maximum(self.low, least), np.minimum(self.high, most)
        return replace(self, begins=np.clip(self.begins, low, np.maximum(high + 1, low)), low=low, high=high)

    def of(self, channels: Array) -> _Elements:
        """Return the elements of some channels."""
        return replace(self, begins=self.begins[:, channels], low=self.low[channels], high=self.high[channels])

    @property
    def numbers(self) -> Array:
        return (self.last + 1 - len(self.begins) + np.arange(len(self.begins)))[:, None]

    def offsets(self, factors: Array) -> Array:
        """Return offsets in the middle of the bounds that all elements set, float32[K]."""
        halves, last = self.numbers - 0.5, self.begins - 1
        far = np.full(self.begins.shape, np.inf)
        least = np.where(self.begins <= self.high, halves - _products(self.begins, factors), -far).max(
            axis=0, initial=-np.inf
        )
        most = np.where(last >= self.low, halves - _products(last, factors), far).min(axis=0, initial=np.inf)
        # If the sums reach no bound on one side, any distance from the other bound will do.
        lower = np.where(np.isfinite(least), least, np.where(np.isfinite(most), most - 2, 0))
        upper = np.where(np.isfinite(most), most, lower + 2)
        return ((lower + upper) / 2).astype(np.float32)

    def holds(self, factors: Array, offsets: Array) -> Array:
        """Return for each channel whether all sums get their elements."""
        begins, last = self.begins, self.begins - 1
        reaches = (begins > self.high) | (_rounded(begins, factors, offsets) >= self.numbers)
        stays = (last < self.low) | (_rounded(last, factors, offsets) < self.numbers)
        return np.asarray((reaches & stays).all(axis=0))


def _fitted(real: Array, problems: tuple[_Elements, ...]) -> tuple[Array, ...] | None:
    """Return float32 factors near `real`, and offsets for each problem, that give every element; None if none exist."""
    nearest = real.astype(np.float32)
    found = (nearest.copy(), *(np.zeros_like(nearest) for _ in problems))
    left = np.arange(len(nearest))
    for step in STEPS:
        tried = (nearest[left].view(np.int32) + np.int32(step)).view(np.float32)
        parts = [problem.of(left) for problem in problems]
        offsets = [part.offsets(tried) for part in parts]
        holds = np.all([part.holds(tried, offset) for part, offset in zip(parts, offsets, strict=True)], axis=0)
        for array, values in zip(found, (tried, *offsets), strict=True):
            array[left[holds]] = values[holds]
        left = left[~holds]
        if not left.size:
            return found
    return None


def _products(sums: Array, factors: Array) -> Array:
    """Return exact products of sums as float32, in float64."""
    return sums.astype(np.float32).astype(np.float64) * factors.astype(np.float64)


def _rounded(sums: Array, factors: Array, offsets: Array) -> Array:
    """Return the results of float arithmetic: sums of exact products and offsets, rounded once, then to integers."""
    return np.rint((_products(sums, factors) + offsets.astype(np.float64)).astype(np.float32))
