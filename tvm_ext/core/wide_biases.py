"""A 64-bit bias as the sum of two 32-bit parts, because Relax dequantizes only these: multiples of 2^31, and the rest.

A frontend adds both parts to the accumulators of a layer, each with its scale, and the reader of the layer joins them.
Two parts also imply that the accumulators have 64 bits.
"""

from __future__ import annotations

import numpy as np

_LOW_BITS = 31
HIGH_SCALE = float(1 << _LOW_BITS)
"""Scale of the first part, in scales of the second."""
LARGEST = (1 << 62) - 1
"""Largest magnitude of a bias in two parts."""


def split_bias(bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return int32 multiples of 2^31, and the rest as int32, of int64 numbers up to LARGEST."""
    high = bias >> _LOW_BITS
    return high.astype(np.int32), (bias - (high << _LOW_BITS)).astype(np.int32)


def joined_bias(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Return the int64 numbers that two parts stand for."""
    return (high.astype(np.int64) << _LOW_BITS) + low
