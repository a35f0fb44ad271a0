"""Requantization in vectors of four sums: by floats that are proved to give the exact elements, or by integers.

A sum as float32, times a factor, plus an offset, rounded to an integer, grows with the sum. So it agrees with the exact
requantization for all sums of a channel if each element begins at the same sum, which `FloatForm` checks with the same
float32 arithmetic as the code. TensorFlow Lite rounds halves away from zero, so negative sums may have another offset.
The integer form has a shift for each lane: a multiplication by a power of two, and the same shift for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.shared.common_shift import HighWords
from codegen_c.kernels.shared.float_factors import beginnings
from codegen_c.kernels.shared.requantize import Requantize, quantization, wrapped
from codegen_c.operators.kinds import Array

UNIT = 8
ROWS = 4
"""Rows of the table of factors."""
FINISH_INSTRUCTIONS = {True: 16, False: 36}
"""Instructions from the sums of a unit to its elements. Key: True for floats."""
STEPS = tuple(step * sign for step in range(17) for sign in ((1, -1) if step else (1,)))
"""Distances from the float nearest to a real factor, in the order of trials."""
LARGEST = 1 << 21
"""Results below it are rounded to integers by adding the float 1.5 * 2^23."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FloatForm:
    """Factors and offsets, float32[K]. negative_offsets: of sums below zero."""

    factors: Array
    offsets: Array
    negative_offsets: Array

    @property
    def has_signs(self) -> bool:
        """True if sums below zero have other offsets."""
        return not np.array_equal(self.offsets, self.negative_offsets)

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array) -> Self | None:
        """Return a form with the elements of `exact` for all sums from low to high, int64[K]; None if none is found."""
        begins = beginnings(exact, low, high)
        real = np.broadcast_to(exact.real_factors, low.shape)
        if begins is None or (2 * np.maximum(np.abs(low), np.abs(high)) * real >= LARGEST).any():
            return None
        staircase = _Staircase(exact=exact, begins=begins, low=low, high=high)
        for signed in (False, True):
            found = staircase.fitted(real.astype(np.float32), signed=signed)
            if found is not None:
                return cls(factors=found[0], offsets=found[1], negative_offsets=found[2])
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Staircase:
    """Sums at which elements begin, int64[elements, K], for sums from low to high, int64[K]."""

    exact: Requantize
    begins: Array
    low: Array
    high: Array

    @property
    def numbers(self) -> Array:
        """Return the elements without the zero point."""
        first = self.exact.low + 1 - quantization(self.exact.output).zero_point
        return (first + np.arange(len(self.begins)))[:, None]

    def fitted(self, nearest: Array, *, signed: bool) -> tuple[Array, Array, Array] | None:
        """Return factors, offsets, and offsets of negative sums; None if a channel has none."""
        found = tuple(np.zeros_like(nearest) for _ in range(3))
        left = np.arange(len(nearest))
        for step in STEPS:
            factors = (nearest[left].view(np.int32) + np.int32(step)).view(np.float32)
            above = self._offsets(left, factors, 0 if signed else -LARGEST * 1024, LARGEST * 1024)
            below = self._offsets(left, factors, -LARGEST * 1024, -1) if signed else above
            holds = self._holds(left, factors, above, below)
            for array, values in zip(found, (factors, above, below), strict=True):
                array[left[holds]] = values[holds]
            left = left[~holds]
            if not left.size:
                return found[0], found[1], found[2]
        return None

    def _offsets(self, channels: Array, factors: Array, least: int, most: int) -> Array:
        """Return offsets in the middle of what the elements allow that begin at sums from least to most."""
        begins, low, high = self.begins[:, channels], self.low[channels], self.high[channels]
        low, high = np.maximum(low, least), np.minimum(high, most)
        halves, last = self.numbers - 0.5, begins - 1
        lower = np.where((begins >= low) & (begins <= high), halves - _product(begins, factors), -np.inf)
        upper = np.where((last >= low) & (last <= high), halves - _product(last, factors), np.inf)
        at_least: Array = np.max(lower, axis=0, initial=-np.inf)
        at_most: Array = np.min(upper, axis=0, initial=np.inf)
        at_least = np.where(np.isinf(at_least), at_most - 0.5, at_least)
        at_most = np.where(np.isinf(at_most), at_least + 0.5, at_most)
        middle = (at_least + at_most) / 2
        return np.where(np.isfinite(middle), middle, 0.0).astype(np.float32)

    def _holds(self, channels: Array, factors: Array, above: Array, below: Array) -> Array:
        """Return for each channel whether all sums get their elements.

        The form grows with sums on each side of zero, so the sums around each begin and those around zero suffice.
        """
        begins, low, high = self.begins[:, channels], self.low[channels], self.high[channels]

        def element(sums: Array) -> Array:
            offsets = np.where(sums < 0, below, above).astype(np.float32)
            return np.rint(_product(sums, factors).astype(np.float32) + offsets)

        reaches = (begins > high) | (element(begins) >= self.numbers)
        stays = (begins - 1 < low) | (element(begins - 1) < self.numbers)
        around = np.ones(channels.shape, dtype=bool)
        for sums in (-1, 0):
            reached = (begins <= sums) == (element(np.full(begins.shape, sums)) >= self.numbers)
            around &= np.asarray(reached.all(axis=0)) | (low > sums) | (high < sums)
        return np.asarray((reaches & stays).all(axis=0)) & around


def _product(sums: Array, factors: Array) -> Array:
    """Return the products of sums and factors in float32."""
    return sums.astype(np.float32) * factors


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitRescale(HighWords):
    """`Requantize` in units of 8 channels. ranges: least and greatest sum of each channel, int64[K]."""

    ranges: tuple[Array, Array]

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> Self:
        words = HighWords.of(requantize, low, high)
        return cls(
            requantize=requantize, left_shift=words.left_shift, halves_even=words.halves_even, ranges=(low, high)
        )

    @cached_property
    def floats(self) -> FloatForm | None:
        """Return the form by floats, or None if there is none."""
        low, high = self.ranges
        shape = np.broadcast_shapes(self.requantize.mantissa.shape, low.shape)
        return FloatForm.of(self.requantize, np.broadcast_to(low, shape), np.broadcast_to(high, shape))

    def fits(self, low: Array, high: Array) -> bool:
        """Return True if there is a form by floats, or an exact one by integers for sums from low to high."""
        if self.floats is not None:
            return True
        if self.requantize.rounding == "litert" or self.halves_even or self.left_shift:
            return False
        multiplier, negative = self.factors()
        shift = -negative.astype(np.int64)
        if not super().fits(low, high) or (shift < 1).any():
            return False
        largest = np.maximum(np.abs(low), np.abs(high)).astype(np.int64)
        highs = (largest * np.abs(multiplier.astype(np.int64)) >> (31 if self.is_twice else 32)) + 2
        sums = highs + (np.int64(1) << (shift - 1))
        return bool((sums << (shift.max() - shift) < 1 << 31).all())

    def table(self, start: Array) -> Array:
        """Return int32[units, 4, 8]: initial sums and factors; channels after the last one are 0."""
        rows = np.zeros((ROWS, -(-len(start) // UNIT) * UNIT), dtype=np.int32)
        if self.floats is not None:
            form = (self.floats.factors, self.floats.offsets, self.floats.negative_offsets)
            values = [np.broadcast_to(one, start.shape).astype(np.float32).view(np.int32) for one in form]
        else:
            multiplier, negative = self.factors()
            shift = -negative.astype(np.int64)
            powers = np.int64(1) << (shift.max() - shift)
            values = [np.broadcast_to(one, start.shape) for one in (multiplier, 1 << (shift - 1), powers)]
        for row, numbers in zip(rows, (wrapped(start), *values), strict=True):
            row[: len(start)] = numbers
        return np.ascontiguousarray(rows.reshape(ROWS, -1, UNIT).transpose(1, 0, 2))

    @property
    def finish_instructions(self) -> int:
        """Return the modelled instructions from the sums of a unit to its elements."""
        return FINISH_INSTRUCTIONS[self.floats is not None]

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_simd128_rescale`."""
        finish = self.requantize
        members: dict[str, Value] = {"is_unsigned": True} if finish.output.dtype == "uint8" else {}
        if self.floats is not None:
            members |= {"has_floats": True, **({"has_signs": True} if self.floats.has_signs else {})}
        else:
            members |= {"rounds_twice": True} if self.is_twice else {}
            members |= {"shift": int(-self.factors()[1].min())}
        return {**members, "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high}
