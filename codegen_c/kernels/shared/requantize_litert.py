"""Requantization as LiteRT's default kernels (XNNPACK) compute it, and its proof as one rounding of integers.

An element is rint(float32(float32(sum) * scale)) + zero point, clamped. The sum and the product are rounded to float32,
and the result to an integer, halves to even. scale is float32(float32(input scale * weight scale) / output scale).
XNNPACK: microparams-init.c (`fp32_scalar`), operators/convolution-nhwc.c, `requantization_scale`.

The result is a staircase over the sums: it never falls, so the sums at which its elements begin describe all of it. A
product of integers that is rounded once gives the same elements if each begins at the same sum. `single_rounding`
searches for a mantissa with this property, from the actual range of each channel's sums. It exists for most channels:
the float32 product differs from the exact one by 2^-18 of a step at most, and few sums are so close to a half. Where
some channel has no such mantissa, the layer multiplies in float32, or does the same in integers on a processor without
floats (tvm_ext_requantize_litert.h).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from codegen_c.kernels.contract import Array

INCLUDES = ("tvm_ext_requantize.h", "tvm_ext_requantize_litert.h")
INSTRUCTIONS = 9
"""Modelled instructions of a sum with a floating-point unit: two conversions, a product, two moves, bounds."""
MANTISSA_BITS, MOST_SHIFT = 31, 52
"""Bits of a mantissa, and the largest shift of a factor for which 64 bits hold any step before it."""
MOST = (1 << MANTISSA_BITS) - 1
_FEWEST_SUMS = 4
"""Sums on either side of the estimate of a step that are searched at least."""


def bits_of(factor: float) -> int:
    """Return the bits of a factor as float32, which is above zero."""
    return int(np.float32(factor).view(np.int32))


def multiply(sums: Array, bits: Array) -> Array:
    """Return int64 results of sums without the zero point. bits: int32, the bits of each sum's scale."""
    scale = np.ascontiguousarray(bits, dtype=np.int32).view(np.float32)
    return np.rint(sums.astype(np.float32) * scale).astype(np.int64)


def sum_factors(first: float, second: float, output: float) -> tuple[int, int, int]:
    """Return (factor of the first input, of the second, shift) of a sum of int8 with these scales.

    The sum is rounded once, halves up; the larger factor has 21 bits. XNNPACK: `xnn_init_qs8_add_minmax_scalar_params`.
    """
    ratios = [np.float32(scale) / np.float32(output) for scale in (first, second)]
    shift = 21 - math.frexp(float(max(ratios)))[1]
    one, other = (int(np.rint(float(ratio) * 2.0**shift)) for ratio in ratios)
    return one, other, shift


def single_rounding(bits: Array, low: Array, high: Array, steps: tuple[int, int]) -> tuple[Array, Array] | None:
    """Return (mantissa, shift) per channel that give each sum from low to high the same clamped result; else None.

    A result is sum * mantissa / 2^shift, rounded once, halves to even. bits: int32[K], of scales. low, high: int64[K].
    steps: the least and the greatest result after the clamp, without the zero point.
    """
    key = tuple(np.ascontiguousarray(array).tobytes() for array in (bits.astype(np.int32), low, high))
    return _single_rounding(*key, *steps)


@lru_cache(maxsize=512)  # kernels, costs and references of a layer all ask
def _single_rounding(
    bits_key: bytes, low_key: bytes, high_key: bytes, least_step: int, greatest_step: int
) -> tuple[Array, Array] | None:
    bits = np.frombuffer(bits_key, np.int32)
    low, high = np.frombuffer(low_key, np.int64), np.frombuffer(high_key, np.int64)
    if not (bits > 0).all():
        return None
    pairs = [_mantissa(float(scale)) for scale in bits.view(np.float32)]
    mantissa, shift = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    if (shift > MOST_SHIFT).any() or (shift < 1).any() or least_step >= greatest_step:
        return None
    steps = np.arange(least_step + 1, greatest_step + 1, dtype=np.int64)
    reached = first_sums(bits, low, high, steps)
    # The product reaches step k if it is at least k - 1/2, and more before an odd k: halves go to the even neighbour.
    bound = ((2 * steps - 1)[None, :] << (shift[:, None] - 1)) + (steps & 1)[None, :]
    found = between(bound, reached, low, high, mantissa)
    return None if found is None else (found, shift.astype(np.uint8))


def _mantissa(scale: float) -> tuple[int, int]:
    """Return (mantissa, shift) of a float32 number, exactly; a mantissa has 31 bits."""
    fraction, exponent = math.frexp(scale)
    return int(fraction * (1 << MANTISSA_BITS)), MANTISSA_BITS - exponent


def first_sums(bits: Array, low: Array, high: Array, steps: Array) -> Array:
    """Return the least sum from low to high whose result reaches each step, else high + 1: int64[K, steps]."""
    scale = np.ascontiguousarray(bits).view(np.float32).astype(np.float64)[:, None]
    wanted, rows = steps[None, :], np.ascontiguousarray(np.broadcast_to(bits[:, None], (len(bits), len(steps))))
    lowest, highest = low[:, None], high[:, None]
    guess = np.clip((wanted - 0.5) / scale, lowest - _FEWEST_SUMS, highest + _FEWEST_SUMS)
    margin = _FEWEST_SUMS + (np.abs(guess) * 2.0**-20).astype(np.int64)  # float32 has 24 bits, at each of two roundings
    below = np.maximum(np.floor(guess).astype(np.int64) - margin, lowest - 1)
    above = np.minimum(np.ceil(guess).astype(np.int64) + margin, highest + 1)
    while (above - below > 1).any():
        middle = (below + above) // 2
        reaches = multiply(middle, rows) >= wanted
        above = np.where(reaches & (above - below > 1), middle, above)
        below = np.where(~reaches & (above - below > 1), middle, below)
    return above


def between(bound: Array, reached: Array, low: Array, high: Array, nearest: Array) -> Array | None:
    """Return multipliers close to `nearest` with which each step lies between the sums reached - 1 and reached.

    int32[K], or None if a channel has none. bound: of products, int64[K or 1, steps]. reached: int64[K, steps]. A step
    outside [low, high] is a bound on one side only.
    """
    least, most = np.zeros_like(low), np.full_like(low, MOST)
    possible = np.ones(low.shape, bool)
    for sums, used, limit, is_least in (
        (reached, reached <= high[:, None], bound, True),  # sum * multiplier >= limit
        (reached - 1, reached > low[:, None], bound - 1, False),  # sum * multiplier <= limit
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
