"""Tables of Fourier transforms of real samples, and the transforms in numpy, bit for bit like the C."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, floor, pi, sin

import numpy as np

from codegen_c.custom.contract import Array

SUFFIXES: Mapping[str, str] = {"int16": "s16", "int32": "s32", "float32": "f32"}
"""Suffix of C functions by element type."""
_C_TYPES = {"int16": "int16_t", "int32": "int32_t", "float32": "float"}
SMALLEST, LARGEST = 4, 1 << 14
"""Shortest and longest transform. Lengths are powers of two."""


def retyped(text: str, dtype: str) -> str:
    """Return C that is written for 16-bit samples with another element type."""
    suffix = SUFFIXES[dtype]
    typed = re.sub(r"\bint16_t\b", _C_TYPES[dtype], text)
    return typed.replace("s16", suffix).replace("S16", suffix.upper())


@dataclass(frozen=True, kw_only=True, eq=False)
class FftTables:
    """Tables of a complex transform.

    order: index of the input that each element begins with. powers: powers of the root of unity, complex numbers as
    pairs. split: powers of the root for twice the length, from which the spectrum of real samples is computed. sign:
    sign of the angle.
    """

    order: Array
    powers: Array
    split: Array
    sign: int

    @property
    def length(self) -> int:
        """Number of complex elements."""
        return len(self.order)

    @classmethod
    def of(cls, real_length: int, dtype: str, *, inverse: bool) -> FftTables:
        """Return the tables of a transform of `real_length` real samples."""
        length, sign = real_length // 2, 1 if inverse else -1
        powers = [sign * 2 * pi * k / length for k in range(max(1, 3 * length // 4))]
        split = [sign * pi * ((k + 1) / length + 0.5) for k in range(length // 2)]
        return cls(order=_order(length), powers=_rounded(powers, dtype), split=_rounded(split, dtype), sign=sign)


def _order(length: int) -> Array:
    """Return the input index of each element: its digits in base four, with a last digit in base two, reversed."""
    order, stride = np.zeros(1, np.int64), 1
    factors: list[int] = []
    while stride < length:
        factors.append(4 if length // stride % 4 == 0 else 2)
        stride *= factors[-1]
    for factor in reversed(factors):
        stride //= factor
        order = (np.arange(factor)[:, np.newaxis] * stride + order).reshape(-1)
    return order.astype(np.uint16)


def _rounded(angles: list[float], dtype: str) -> Array:
    pairs = [(cos(angle), sin(angle)) for angle in angles]
    if dtype == "float32":
        return np.array(pairs, np.float32).reshape(-1)
    most = np.iinfo(dtype).max
    return np.array([[floor(0.5 + most * part) for part in pair] for pair in pairs], dtype).reshape(-1)


class Samples:
    """Arithmetic of one element type on complex arrays, as pairs of int64 or of float32."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.is_float = dtype, dtype == "float32"
        self._bits = 0 if self.is_float else np.iinfo(dtype).bits

    def stored(self, x: Array) -> Array:
        """Return values as the element type stores them. Integers wrap around."""
        return x.astype(self.dtype).astype(np.float32 if self.is_float else np.int64)

    def part(self, x: Array, count: int) -> Array:
        """Return the values divided by `count`, which keeps integer sums of `count` values in range."""
        return x if self.is_float else self._scaled(x * (int(np.iinfo(self.dtype).max) // count))

    def half(self, x: Array) -> Array:
        """Return half of the values."""
        if self.is_float:
            return x * np.float32(0.5)
        return self.stored((x if self._bits == 16 else self.stored(x)) >> 1)

    def times(self, x: Array, table: Array) -> Array:
        """Return the products of complex numbers [..., 2] and [..., 2]."""
        (a, b), (c, d) = (np.moveaxis(self.stored(y), -1, 0) for y in (x, table))
        return np.stack([self._scaled(a * c - b * d), self._scaled(a * d + b * c)], -1)

    def _scaled(self, x: Array) -> Array:
        """Return a product of integers rounded and shifted back to the fixed-point scale; floats unchanged."""
        if self.is_float:
            return x
        return self.stored((x + (1 << (self._bits - 2))) >> (self._bits - 1))


def transform(x: Array, tables: FftTables, samples: Samples) -> Array:
    """Return the complex transform of elements [length, 2] that are in the tables' order."""
    length, powers = tables.length, samples.stored(tables.powers.reshape(-1, 2))
    # Butterflies of four elements, after one step of two elements if the length is not a power of four.
    done = 1 if length.bit_length() % 2 else 2
    if done == 2:
        a, b = (samples.part(x[k::2], 2) for k in range(2))
        b = samples.times(b, np.broadcast_to(powers[0], b.shape))
        x = np.stack([samples.stored(a + b), samples.stored(a - b)], 1).reshape(-1, 2)
    while done < length:
        steps = np.arange(done) * (length // (4 * done))
        a, b, c, d = (
            samples.times(samples.part(y, 4), np.broadcast_to(powers[k * steps], y.shape)) if k else samples.part(y, 4)
            for k, y in enumerate(np.moveaxis(x.reshape(-1, 4, done, 2), 1, 0))
        )
        even, odd, apart, turned = (samples.stored(y) for y in (a + c, b + d, a - c, b - d))
        turned = np.stack([-tables.sign * turned[..., 1], tables.sign * turned[..., 0]], -1)
        parts = [even + odd, apart + turned, even - odd, apart - turned]
        x = np.stack([samples.stored(y) for y in parts], 1).reshape(-1, 2)
        done *= 4
    return x


def rfft(row: Array, tables: FftTables, dtype: str) -> Array:
    """Return the lower half of the transform of a row of real samples, as consecutive pairs."""
    samples, length = Samples(dtype), tables.length
    padded = samples.stored(np.pad(row, (0, 2 * length - row.size))).reshape(-1, 2)
    x = transform(padded[tables.order], tables, samples)
    first, ks = samples.part(x[0], 2), np.arange(1, length // 2 + 1)
    own, mirror = samples.part(x[ks], 2), samples.part(samples.stored(x[length - ks] * [1, -1]), 2)
    sums = samples.stored(own + mirror)
    turned = samples.times(samples.stored(own - mirror), tables.split.reshape(-1, 2))
    found = np.zeros((length + 1, 2), x.dtype)
    found[0, 0], found[length, 0] = samples.stored(np.array([first[0] + first[1], first[0] - first[1]]))
    found[ks] = samples.half(sums + turned)
    found[length - ks] = samples.half((sums - turned) * [1, -1])
    return found.reshape(-1).astype(dtype)


def irfft(row: Array, tables: FftTables, dtype: str) -> Array:
    """Return the samples of a row that is the lower half of a transform."""
    samples, length = Samples(dtype), tables.length
    x, ks = samples.stored(row).reshape(-1, 2), np.arange(1, length // 2 + 1)
    work = np.zeros((length, 2), x.dtype)
    work[0] = samples.part(samples.stored(np.array([x[0, 0] + x[length, 0], x[0, 0] - x[length, 0]])), 2)
    own, mirror = samples.part(x[ks], 2), samples.part(samples.stored(x[length - ks] * [1, -1]), 2)
    even = samples.stored(own + mirror)
    odd = samples.times(samples.stored(own - mirror), tables.split.reshape(-1, 2))
    work[ks] = samples.stored(even + odd)
    work[length - ks] = samples.stored(samples.stored(even - odd) * [1, -1])
    found = transform(work[tables.order], tables, samples).reshape(-1)
    return (found / np.float32(2 * length) if samples.is_float else found).astype(dtype)
