"""Requantization by high products: for processors whose 64-bit shifts take several instructions.

With shift s >= 33, the rest r = s - 33 and h = floor(sum * mantissa / 2^32), rounding half up is

    floor((sum * mantissa + 2^(s - 1)) / 2^s) = floor((h + 2^r) / 2^(r + 1)) = floor((floor(h / 2^r) + 1) / 2)

as the 32 bits below h cannot carry into it. Half up is half to even where no product is a tie. A tie needs a sum with
s - 1 - t trailing zeros, t being those of the mantissa: none has them if |sum| < 2^(s - 1 - t).

TensorFlow Lite rounds twice: the high product of the doubled sum, halves up; then the division by 2^(s - 31), here
r = s - 32, halves away from zero: up after taking one off where the sum is negative (which changes nothing where that
product is rounded to zero).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.operators.kinds import Array

# (2 * 255 + 1) * 2^r and half of an int32's range must fit an int32 together.
MAX_REST = 20


def by_high_products(exact: Requantize, low: Array, high: Array) -> Requantize:
    """The same as the code reads it that takes high products, where these round as the whole products do; else itself.

    low, high: bounds of the sums, int64, one pair for each factor (or one for all).
    """
    if exact.rounding == "tflite_wide":
        return exact
    largest = np.maximum(np.abs(low), np.abs(high)).astype(np.int64)
    largest = np.broadcast_to(largest.max() if exact.is_uniform else largest, exact.mantissa.shape)
    behind = _behind_one_rounding if exact.rounding == "onnx" else _behind_two_roundings
    pairs = [behind(int(m), int(s), int(b)) for m, s, b in zip(exact.mantissa, exact.shift, largest, strict=True)]
    found = [pair for pair in pairs if pair is not None]
    if len(found) < len(pairs):
        return exact
    mantissa = np.array([m for m, _ in found], dtype=np.int32)
    rest = np.array([r for _, r in found], dtype=np.uint8)
    return replace(exact, mantissa=mantissa, shift=rest, is_behind_high_products=True)


def _behind_one_rounding(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """(mantissa, r) for sums up to `largest`, where the high product rounds as the whole one does."""
    if mantissa == 0 or largest * mantissa < 1 << (shift - 1):  # every result is the zero point
        return 0, 0
    trailing_zeros = (mantissa & -mantissa).bit_length() - 1
    no_tie = largest < 1 << max(shift - 1 - trailing_zeros, 0)
    return (mantissa, shift - 33) if 33 <= shift <= 33 + MAX_REST and no_tie else None


def _behind_two_roundings(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """The same for TensorFlow Lite's roundings: sums that can be doubled, and something left to divide by."""
    if mantissa == 0 or (
        shift >= 32 and largest * mantissa < 1 << (shift - 2)
    ):  # below a half, also once it is rounded up
        return 0, 0
    return (mantissa, shift - 32) if 32 <= shift <= 32 + MAX_REST and largest < 1 << 30 else None
