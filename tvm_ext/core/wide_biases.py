"""A bias of 64 bits as the sum of two of 32, for which Relax has a dequantize: multiples of 2^31, and the rest.

A frontend adds both to the sums of a layer, each with its scale; whoever reads the layer joins them. Two parts say
that the sums have 64 bits, too.
"""

from __future__ import annotations

import numpy as np

_LOW_BITS = 31
HIGH_SCALE = float(1 << _LOW_BITS)
"""Scale of the first part, in scales of the second."""
LARGEST = (1 << 62) - 1
"""Largest magnitude of a bias in two parts."""


def split_bias(bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int32 multiples of 2^31, the rest as int32) of int64 numbers of at most LARGEST."""
    high = bias >> _LOW_BITS
    return high.astype(np.int32), (bias - (high << _LOW_BITS)).astype(np.int32)


def joined_bias(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """The int64 numbers that two parts are of."""
    return (high.astype(np.int64) << _LOW_BITS) + low
