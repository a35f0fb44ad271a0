"""Recognize constant matrices of windowed cosines and sines, which Fourier transforms replace.

Exporters write a short-time Fourier transform as a product of frames with a constant matrix. Row [k, n] of its real
part is window[n] * cos(2 pi k n / N), and of its imaginary part the same with -sin or sin. Both parts may stand one
after the other, or alternate. Every entry is compared with the recovered window and frequency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Array = np.ndarray

TOLERANCE = 2.0**-20
"""Largest difference between an entry and the recovered basis, relative to the largest factor of the window.

An entry is a product of a cosine and a factor of the window, all of them rounded to float32: 3 * 2^-24 at most. A
matrix whose angles were rounded to float32 differs by more, and is left a product."""
SHORTEST, LONGEST = 12, 1 << 14
"""Samples of a transform. Longer ones have indices that the tables of a kernel do not hold."""
_LEAST_ROWS = 8
"""Fewest rows of a matrix that is examined at all."""


@dataclass(frozen=True, kw_only=True)
class RowOrder:
    """Rows of a matrix: bin k of the real part is row real + k * step, of the imaginary part imaginary + k * step.

    imaginary: None if there are only real parts.
    """

    real: int
    imaginary: int | None
    step: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FourierBasis:
    """A matrix of windowed cosines and sines.

    length: samples of the transform, N. window: float64[n], factors of the first n <= N samples of a frame; the others
    are zero. begin, end: frequencies of the rows, in units of 1 / N. rows: their order. is_conjugate: True if the
    imaginary rows are sines, False if they are negative sines, as in a forward transform.
    """

    length: int
    window: Array
    begin: int
    end: int
    rows: RowOrder
    is_conjugate: bool


def fourier_basis(matrix: Array) -> FourierBasis | None:
    """Return the basis that a matrix float32[rows, samples] holds; None for any other matrix."""
    if matrix.ndim != 2 or matrix.shape[0] < _LEAST_ROWS or not 4 <= matrix.shape[1] <= LONGEST:
        return None
    return next((basis for order in _orders(len(matrix)) if (basis := _basis(matrix, order)) is not None), None)


def _orders(rows: int) -> Iterator[RowOrder]:
    if rows % 2 == 0:
        yield RowOrder(real=0, imaginary=rows // 2, step=1)
        yield RowOrder(real=0, imaginary=1, step=2)
    yield RowOrder(real=0, imaginary=None, step=1)


def _basis(matrix: Array, order: RowOrder) -> FourierBasis | None:
    if order.imaginary is None:
        return _real_basis(matrix, order)
    bins = len(matrix) // 2

    def part(first: int) -> Array:
        return matrix[first : first + bins * order.step : order.step].astype(np.float64)

    real, imaginary = part(order.real), part(order.imaginary)
    squares = real[[0, 1, -1]] ** 2 + imaginary[[0, 1, -1]] ** 2  # of the window, the same in each row
    largest = np.sqrt(squares.max(initial=0.0))
    if not 0 < largest < np.inf or np.abs(squares - squares[0]).max() > 8 * TOLERANCE * largest**2:
        return None
    points = real + 1j * imaginary
    # The angle of a row grows by 2 pi k / N from sample to sample, and this by 2 pi / N from row to row.
    grown = (points[1:] * points[:-1].conj()).sum(axis=0)
    apart = _angle(grown)
    if not abs(apart) > np.pi / LONGEST:
        return None
    length, is_conjugate = round(2 * np.pi / abs(apart)), bool(apart > 0)
    first = _angle(points[0]) * (1 if is_conjugate else -1)
    begin = round(first * length / (2 * np.pi)) % length
    return _verified(real, imaginary, order, length, begin, is_conjugate)


def _angle(points: Array) -> float:
    """Return the mean angle from one point to the next."""
    return float(np.angle((points[1:] * points[:-1].conj()).sum()))


def _real_basis(matrix: Array, order: RowOrder) -> FourierBasis | None:
    """Return the basis of cosines from frequency 0 on. Its length can only be guessed, and is then verified."""
    bins, samples = matrix.shape
    for length in dict.fromkeys((2 * (bins - 1), samples, 1 << (samples - 1).bit_length())):
        if found := _verified(matrix.astype(np.float64), None, order, length, 0, False):
            return found
    return None


def _verified(
    real: Array, imaginary: Array | None, order: RowOrder, length: int, begin: int, is_conjugate: bool
) -> FourierBasis | None:
    """Return the basis if each entry is within the tolerance; None otherwise."""
    samples, end = int(real.shape[1]), begin + len(real)
    if not max(SHORTEST, samples) <= length <= LONGEST or end > length:
        return None
    turns = np.arange(begin, end)[:, np.newaxis] * np.arange(samples) % length
    angles = 2 * np.pi / length * turns
    cosines, sines = np.cos(angles), np.sin(angles) * (1 if is_conjugate else -1)
    window = real[0] if imaginary is None else (real * cosines + imaginary * sines).mean(axis=0)
    bound = TOLERANCE * np.abs(window).max()
    fits = np.abs(real - window * cosines).max() <= bound
    if imaginary is not None:
        fits = fits and np.abs(imaginary - window * sines).max() <= bound
    if not fits or bound == 0:
        return None
    return FourierBasis(length=length, window=window, begin=begin, end=end, rows=order, is_conjugate=is_conjugate)
