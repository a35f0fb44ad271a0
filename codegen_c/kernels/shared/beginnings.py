"""The sum at which each element of a layer begins: elements grow with sums, so these tell the element of every sum.

Another way from sums to elements that grows with them too, and agrees at these beginnings and at the sums below them,
gives all sums the same elements.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

# Sums by which the beginning of an element may lie off where the real factor has it.
SLACK = 2


def beginnings(requantize: Requantize, low: Array, high: Array) -> Array | None:
    """int64[elements, K]: least sum from low to high that gives the element or one above it, else high + 1.

    Elements are those above the least one that `requantize` gives. low, high: int64[K]. None where factors are not
    above 0, or where sums begin an element too far off.
    """
    elements = np.arange(requantize.low + 1, requantize.high + 1)[:, None]
    mantissa = np.broadcast_to(requantize.mantissa, low.shape).astype(np.float64)
    if (mantissa <= 0).any():
        return None
    size = np.exp2(np.broadcast_to(requantize.shift, low.shape).astype(np.float64)) / mantissa
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
    # Where no sum around the guess reaches the element, none at all may.
    return begins if bool((is_least & is_reached).all()) else None
