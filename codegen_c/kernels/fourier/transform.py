"""Tables, cost and numpy reference of the transforms of tvm_ext_fourier_f32.h.

The reference does the same operations in the same order on float32 arrays, so that its results have the bits of the C.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np

from codegen_c.kernels.fourier.basis import FourierBasis

Array = np.ndarray
ComplexArray = np.ndarray[tuple[int, ...], np.dtype[np.complex128]]
RADICES = (4, 2, 3, 5)
"""Factors that steps take out of the length, in this order."""
NAMES = {2: "two", 3: "three", 4: "four", 5: "five"}

# Modelled, fitted to the instructions that transforms of 64 to 1,024 samples execute on a Cortex-M4 in QEMU, by GCC 12:
# a point of the frame with its window; of each radix a butterfly with its loads and stores; a root of one that
# multiplies a point; a pair of bins; of each step its call, and of each of its roots the loop over butterflies. All are
# within 2 %.
POINT_INSTRUCTIONS, ROOT_INSTRUCTIONS, BINS_INSTRUCTIONS = 7, 6, 20
BUTTERFLY_INSTRUCTIONS = {2: 16, 3: 34, 4: 41, 5: 80}
STEP_INSTRUCTIONS, FRAME_INSTRUCTIONS, TURN_INSTRUCTIONS = 10, 30, 2


def radices_of(length: int) -> tuple[int, ...] | None:
    """Return the factors of a complex transform in the order of its steps; None if it has other prime factors."""
    found: list[int] = []
    for radix in RADICES:
        while length % radix == 0:
            found.append(radix)
            length //= radix
    return tuple(found) if length == 1 else None


@dataclass(frozen=True, kw_only=True, eq=False)
class FourierTables:
    """Tables of the transform of a real frame by a complex transform of half as many points.

    radices: of the steps. order: uint16, index of the first of two samples of each point, as the first step reads them.
    window: float32, half of the factors of both samples of each point in this order. turns: float32, real and imaginary
    parts of the roots of one of all further steps. split: float32, cosines and sines for the spectrum.
    """

    radices: tuple[int, ...]
    order: Array
    window: Array
    turns: Array
    split: Array

    @property
    def points(self) -> int:
        return len(self.order)

    @property
    def parts(self) -> tuple[int, ...]:
        """Points of the transforms that each step begins with."""
        return (1, *accumulate(self.radices[:-1], mul))

    def first_turn(self, step: int) -> int:
        """Return the index in `turns` of a step's first root."""
        return sum(2 * (r - 1) * (p - 1) for r, p in zip(self.radices[1:step], self.parts[1:step], strict=True))

    @classmethod
    def of(cls, basis: FourierBasis) -> FourierTables:
        """Return the tables for the frames and the window of a basis."""
        points = basis.length // 2
        radices = radices_of(points)
        assert radices is not None and len(radices) > 1, "constraints have tested the length"
        samples = len(basis.window)
        order = 2 * _reversed_digits(radices)
        factors = np.zeros(basis.length)
        factors[:samples] = basis.window / 2
        window = np.stack([factors[order], factors[order + 1]], axis=-1)
        # Samples after the frame have a factor of zero; the frame's first two are read in their place.
        inside = np.where(order < samples, order, 0)
        halves = np.pi / points * np.arange(1, (points + 1) // 2)
        return cls(
            radices=radices, order=inside.astype(np.uint16), window=window.astype(np.float32).reshape(-1),
            turns=_turns(radices), split=_pairs(np.exp(1j * halves)),
        )  # fmt: skip


def _reversed_digits(radices: tuple[int, ...]) -> Array:
    """Return the input index of each point at the first step: its mixed-radix digits, reversed."""
    order, apart = np.zeros(1, np.int64), prod(radices)
    for radix in radices:
        apart //= radix
        order = (np.arange(radix)[:, np.newaxis] * apart + order[np.newaxis]).reshape(-1)
    return order


def _turns(radices: tuple[int, ...]) -> Array:
    found: list[ComplexArray] = []
    part = radices[0]
    for radix in radices[1:]:
        powers: Array = np.arange(1, part)[:, np.newaxis] * np.arange(1, radix)
        found.append(np.exp(-2j * np.pi / (radix * part) * powers).reshape(-1))
        part *= radix
    return _pairs(np.concatenate(found))


def _pairs(numbers: ComplexArray) -> Array:
    return np.stack([numbers.real, numbers.imag], axis=-1).astype(np.float32).reshape(-1)


# The reference. A complex number is a pair of float32 arrays, as in C: numpy's own complex product is another order.

Complex = tuple[Array, Array]


def spectrum(frames: Array, basis: FourierBasis) -> Complex:
    """Return bins 0 to N / 2 of frames float32[count, samples]: real and imaginary parts, float32[count, bins]."""
    tables = FourierTables.of(basis)
    points = tables.points
    order, window = tables.order.astype(np.int64), tables.window.reshape(-1, 2)
    x = (frames[:, order] * window[:, 0], frames[:, order + 1] * window[:, 1])
    first = 0
    for radix, part in zip(tables.radices, tables.parts, strict=True):
        count = 2 * (radix - 1) * (part - 1)
        x = _step(x, radix, part, tables.turns[first : first + count].reshape(-1, radix - 1, 2))
        first += count
    return _split(x, points, tables.split.reshape(-1, 2))


def _step(x: Complex, radix: int, part: int, turns: Array) -> Complex:
    """Return the points after a step. turns: of points 1 to part - 1, as in the table; the first step has none."""

    def leg(k: int) -> Complex:
        own = tuple(one.reshape(len(one), -1, radix, part)[:, :, k] for one in x)
        if k == 0:
            return own  # type: ignore[return-value]
        real, imaginary = own[0].copy(), own[1].copy()
        c, s = turns[:, k - 1, 0], turns[:, k - 1, 1]
        real[..., 1:] = own[0][..., 1:] * c - own[1][..., 1:] * s
        imaginary[..., 1:] = own[0][..., 1:] * s + own[1][..., 1:] * c
        return real, imaginary

    legs = _BUTTERFLIES[radix](*(leg(k) for k in range(radix)))
    real, imaginary = (np.stack(part, axis=2) for part in zip(*legs, strict=True))
    return real.reshape(len(real), -1), imaginary.reshape(len(real), -1)


def _sum(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _less_turned(a: Complex, b: Complex) -> Complex:
    return a[0] + b[1], a[1] - b[0]


def _plus_turned(a: Complex, b: Complex) -> Complex:
    return a[0] - b[1], a[1] + b[0]


def _blend(a: float, x: Complex, b: float, y: Complex) -> Complex:
    first, second = np.float32(a), np.float32(b)
    return first * x[0] + second * y[0], first * x[1] + second * y[1]


def _two(a: Complex, b: Complex) -> tuple[Complex, ...]:
    return _sum(a, b), _difference(a, b)


def _three(a: Complex, b: Complex, c: Complex) -> tuple[Complex, ...]:
    half, sine = np.float32(0.5), np.float32(0.8660254)
    total, difference = _sum(b, c), _difference(b, c)
    even = a[0] - half * total[0], a[1] - half * total[1]
    odd = sine * difference[0], sine * difference[1]
    return _sum(a, total), _less_turned(even, odd), _plus_turned(even, odd)


def _four(a: Complex, b: Complex, c: Complex, d: Complex) -> tuple[Complex, ...]:
    even, apart, odd, turned = _sum(a, c), _difference(a, c), _sum(b, d), _difference(b, d)
    return _sum(even, odd), _less_turned(apart, turned), _difference(even, odd), _plus_turned(apart, turned)


def _five(a: Complex, b: Complex, c: Complex, d: Complex, e: Complex) -> tuple[Complex, ...]:
    cosine1, cosine2, sine1, sine2 = 0.309017, -0.809017, 0.95105654, 0.58778524
    outer, inner, far, close = _sum(b, e), _sum(c, d), _difference(b, e), _difference(c, d)
    even1 = _sum(a, _blend(cosine1, outer, cosine2, inner))
    even2 = _sum(a, _blend(cosine2, outer, cosine1, inner))
    odd1, odd2 = _blend(sine1, far, sine2, close), _blend(sine2, far, -sine1, close)
    return (
        _sum(a, _sum(outer, inner)), _less_turned(even1, odd1), _less_turned(even2, odd2), _plus_turned(even2, odd2),
        _plus_turned(even1, odd1),
    )  # fmt: skip


_BUTTERFLIES = {2: _two, 3: _three, 4: _four, 5: _five}


def _split(x: Complex, points: int, split: Array) -> Complex:
    """Return the bins of a real frame from the complex transform of its pairs."""
    real, imaginary = (np.zeros((len(x[0]), points + 1), np.float32) for _ in range(2))
    two = np.float32(2)
    even, odd = two * x[0][:, 0], two * x[1][:, 0]
    real[:, 0], real[:, points] = even + odd, even - odd
    k = np.arange(1, (points + 1) // 2)
    a, b = (x[0][:, k], x[1][:, k]), (x[0][:, points - k], x[1][:, points - k])
    total, difference = (a[0] + b[0], a[1] - b[1]), (a[0] - b[0], a[1] + b[1])
    cosine, sine = split[:, 0], split[:, 1]
    turned = cosine * difference[1] - sine * difference[0], cosine * difference[0] + sine * difference[1]
    real[:, k], imaginary[:, k] = total[0] + turned[0], total[1] - turned[1]
    real[:, points - k], imaginary[:, points - k] = total[0] - turned[0], -total[1] - turned[1]
    if points % 2 == 0:
        middle = points // 2
        real[:, middle], imaginary[:, middle] = two * x[0][:, middle], -two * x[1][:, middle]
    return real, imaginary


def frame_instructions(tables: FourierTables) -> int:
    """Return the modelled instructions of one frame."""
    points = tables.points
    total = FRAME_INSTRUCTIONS + points * POINT_INSTRUCTIONS
    for radix, part in zip(tables.radices, tables.parts, strict=True):
        butterflies = points // radix
        turned = butterflies * (part - 1) // part * (radix - 1)
        total += butterflies * BUTTERFLY_INSTRUCTIONS[radix] + turned * ROOT_INSTRUCTIONS
        total += STEP_INSTRUCTIONS + part * TURN_INSTRUCTIONS if part > 1 else 0
    return total + points // 2 * BINS_INSTRUCTIONS


def frame_products(tables: FourierTables) -> int:
    """Return the multiplications of one frame, which reports count as multiply-accumulates."""
    points = tables.points
    roots = sum(
        points // radix * (part - 1) // part * (radix - 1)
        for radix, part in zip(tables.radices, tables.parts, strict=True)
    )
    own = sum({3: 4, 5: 16}.get(radix, 0) * (points // radix) for radix in tables.radices)
    return 2 * points + 4 * roots + own + 4 * (points // 2)
