"""Requantization in 32 bits, for processors without longer products: exactly the rounding of `requantize.py`.

Elements rise with their sums, so a few thresholds determine all elements: T_r is the least sum whose element is r or
more. With d = sum - s, where s is the greatest sum that gives the least element, clamped to [0, span], an element is

    (d * (m >> b) + (d * (m & (2^b - 1)) >> b) + c) >> 24,

which is floor((d * m / 2^b + c) / 2^24). The factor m, 2^(24 + b) output steps of one unit of a sum, and c are chosen
so that every T_r gives r or more and every T_r - 1 less; then all sums give their exact elements, in either rounding.
Bias, zero points and the least element are part of s and c. TensorFlow Lite rounds halves away from zero, so that the
thresholds of negative sums lie beside those of the others: then c grows by e at distances of at least D, where sums are
no longer negative. If no such numbers exist, as with many ties that go to even, a layer uses products of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Target
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array, Operator

HEADERS = (
    "tvm_ext_armv6m.h", "tvm_ext_armv6m_requantize.h", "tvm_ext_layer.h", "tvm_ext_requantize.h",
    "tvm_ext_requantize_litert.h", "tvm_ext_requantize_tflite.h",
)  # fmt: skip
PARAMETER = Parameter(name="factors", ctype="int32_t", role="constant")
ELEMENT_BITS = 24
"""Fractional bits below an element."""
MOST_FRACTION_BITS = 24
NEAR_FACTORS = tuple(sorted(range(-24, 25), key=abs))
"""Distances of the factors that are tried, the nearest first."""
NEAR_SUMS = np.arange(-3, 4)
"""Distances of a threshold from its estimate."""


def for_speed(operator: Operator, target: Target) -> bool:
    """factors of 16 bytes per channel are only for speed, and only if flash need not be saved"""
    return target.optimize == "speed" and not target.least_flash


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowRequantize:
    """Requantization by tvm_ext_armv6m_requantize.h.

    factors: int32[K, 4]: in 32 bits s, span, m and c of a channel, otherwise its bias, mantissa, shift and 0; with two
    constants int32[K, 6], the same and D and e. fraction_bits: b, or 0 for products of 64 bits.
    """

    exact: Requantize
    factors: Array
    fraction_bits: int

    @property
    def has_two_constants(self) -> bool:
        return self.factors.shape[1] > 4

    @classmethod
    def of(cls, exact: Requantize, *, low: Array, high: Array, start: Array) -> Self:
        """Return the requantization.

        low, high: bounds of the sums of `exact`, int64[K]. start: number that must be added to the C code's sums,
        int64[K].
        """
        exact_of = _Elements(exact=exact, low=low, high=high)
        thresholds = exact_of.thresholds()
        found = thresholds.factors(exact_of.step) if thresholds else None
        if thresholds and found:
            bits, m, c, split, more = found
            c = c + ((thresholds.least & 255) << ELEMENT_BITS)
            rows = (thresholds.begin - start, thresholds.span, m, c, split, more)
            columns = [_wrapped(row) for row in (rows if more.any() else rows[:4])]
            return cls(exact=exact, factors=np.stack(columns, axis=1), fraction_bits=bits)
        mantissa, shift = (np.broadcast_to(array, start.shape) for array in (exact.mantissa, exact.shift))
        columns = [_wrapped(column) for column in (start, mantissa, shift, np.zeros_like(start))]
        return cls(exact=exact, factors=np.stack(columns, axis=1), fraction_bits=0)

    @property
    def instructions(self) -> int:
        """Modelled instructions of one sum, with its channel's factors in registers."""
        return (20 if self.has_two_constants else 16) if self.fraction_bits else 90

    def members(self) -> dict[str, Value]:
        """Return a `tvm_ext_armv6m_requantize`."""
        return {
            "fraction_bits": self.fraction_bits, "rounds_twice": self.exact.rounding == "tflite",
            **({"in_floats": True} if self.exact.rounding == "litert" else {}),
            **({"has_two_constants": True} if self.has_two_constants else {}),
            "zero_point": quantization(self.exact.output).zero_point, "low": self.exact.low, "high": self.exact.high,
        }  # fmt: skip

    def constants(self) -> tuple[tuple[str, Array], ...]:
        return ((PARAMETER.name, self.factors),)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Thresholds:
    """Least sums, relative to `begin`, that give each element above the least one: int64[elements, K].

    counts: True if a channel has that element. least: the least element, int64[K]. span: the last threshold.
    """

    begin: Array
    least: Array
    span: Array
    distances: Array
    counts: Array

    def factors(self, step: Array) -> tuple[int, Array, Array, Array, Array] | None:
        """Return (b, m, c, D, e), with m and c as uint32 in int64[K]; None if there are none.

        step: output steps of a unit. e is 0 for all channels if one constant is enough.
        """
        bits = min(32 - int(self.span.max()).bit_length(), MOST_FRACTION_BITS)
        step = np.where(self.span > 0, step, 0.0)
        while bits > 0 and step.max() * 2.0 ** (ELEMENT_BITS + bits) >= (1 << 32) - NEAR_FACTORS[-1]:
            bits -= 1
        if bits <= 0:
            return None
        nearest = np.rint(step * 2.0 ** (ELEMENT_BITS + bits)).astype(np.int64)
        # At no distance is the second constant added, or where sums are no longer negative.
        for split in (self.span + 1, np.clip(-self.begin, 1, self.span + 1)):
            m, c, more = np.zeros_like(nearest), np.full_like(nearest, -1), np.zeros_like(nearest)
            for near in NEAR_FACTORS:
                tried = np.maximum(nearest + near, 0)
                low, high, low_above, high_above = self._constants(tried, bits, split)
                taken = (c < 0) & (low <= high) & (low_above <= high_above)
                m, c = np.where(taken, tried, m), np.where(taken, (low + high) // 2, c)
                more = np.where(taken & (split <= self.span), (low_above + high_above) // 2 - c, more)
                if (c >= 0).all():
                    return bits, m, c, split, more
        return None

    def _constants(self, m: Array, bits: int, split: Array) -> tuple[Array, Array, Array, Array]:
        """Return the least and the greatest c that give each element at its threshold, and not before it.

        First of distances below `split`, then of the others.
        """

        def product(distance: Array) -> Array:
            return distance * (m >> bits) + (distance * (m & ((1 << bits) - 1)) >> bits)

        far = np.int64(1) << 40
        elements = np.arange(1, len(self.distances) + 1)[:, np.newaxis]
        # Elements are numbered from the least one of a channel; rows without a threshold do not count.
        number = np.where(self.counts, np.cumsum(self.counts, axis=0), elements) << ELEMENT_BITS
        reached, missed = self.distances, self.distances - 1
        most = ((self.counts.sum(axis=0) + 1) << ELEMENT_BITS) - 1 - product(self.span)

        def least_of(here: Array, at: Array) -> Array:
            return np.where(self.counts & here, number - product(at), -far).max(axis=0, initial=-far)

        def greatest_of(here: Array, at: Array) -> Array:
            return np.where(self.counts & here, number - 1 - product(at), far).min(axis=0, initial=far)

        is_all, is_one = np.ones(self.counts.shape, bool), split > self.span
        low = np.maximum(least_of(reached < split, reached), 0)
        high = np.minimum(greatest_of(is_all, np.minimum(missed, split - 1)), (1 << ELEMENT_BITS) - 1)
        high = np.where(is_one, np.minimum(high, most), high)
        low_above = least_of(is_all, np.maximum(reached, split))
        high_above = np.minimum(greatest_of(missed >= split, missed), most)
        return low, high, np.where(is_one, 0, low_above), np.where(is_one, 0, high_above)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Elements:
    """Elements of sums from low to high, int64[K] each, as the exact requantization gives them."""

    exact: Requantize
    low: Array
    high: Array

    @property
    def step(self) -> Array:
        """Output steps of one unit of a sum, float64[K]."""
        return np.broadcast_to(self.exact.real_factors, self.low.shape)

    def of(self, sums: Array) -> Array:
        """Return the elements, int64[..., K], of sums, int64[..., K]."""
        return self.exact.run(sums).astype(np.int64)

    def thresholds(self) -> _Thresholds | None:
        """Return the thresholds; None if sums are too far apart for 32 bits, or a threshold far from its estimate."""
        if (self.high - self.low).max() >= 1 << 31:
            return None
        zero_point, step = quantization(self.exact.output).zero_point, self.step
        least, greatest = self.of(self.low), self.of(self.high)
        elements = np.arange(self.exact.low + 1, self.exact.high + 1)[:, np.newaxis]
        counts = (elements > least) & (elements <= greatest)
        estimate = np.floor((elements - 0.5 - zero_point) / np.where(step > 0, step, 1.0))
        near = np.clip(estimate, self.low, self.high).astype(np.int64) + NEAR_SUMS[:, np.newaxis, np.newaxis]
        near = np.clip(near, self.low, self.high)
        reaches = self.of(near) >= elements
        first = np.argmax(reaches, axis=0)
        found = np.take_along_axis(near, first[np.newaxis], axis=0)[0]
        exact = (self.of(found) >= elements) & (self.of(np.maximum(found - 1, self.low)) < elements)
        if not exact[counts].all():
            return None
        any_counts = counts.any(axis=0)
        begin = np.where(any_counts, np.where(counts, found, 1 << 62).min(axis=0, initial=1 << 62) - 1, self.low)
        span = np.where(any_counts, np.where(counts, found - begin, 0).max(axis=0, initial=0), 0)
        return _Thresholds(
            begin=begin, least=least, span=span, distances=np.where(counts, found - begin, 0), counts=counts
        )


def _wrapped(values: Array) -> Array:
    """Convert int64 to int32 modulo 2^32."""
    return np.asarray(values).astype(np.int64).astype(np.uint64).astype(np.uint32).view(np.int32)
