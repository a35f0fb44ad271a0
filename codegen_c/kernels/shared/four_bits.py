"""Weights of 4 bits, two to a byte. Each kernel chooses which two share one, by the instructions that part them."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Target
from codegen_c.operators.kinds import Array, PackedQConv2d, PackedQDense

LOW, HIGH = -8, 7


def fits_four_bits(weight: Array) -> bool:
    """True of integers from -8 to 7."""
    return weight.size > 0 and int(weight.min()) >= LOW and int(weight.max()) <= HIGH


def four_bit_weights(operator: PackedQConv2d | PackedQDense, target: Target) -> bool:
    """weights stored in 4 bits must lie between -8 and 7"""
    return fits_four_bits(operator.weight)


def pack_pairs(low: Array, high: Array) -> Array:
    """int8 from -8 to 7 each -> uint8: `low` in the lower four bits, `high` in the upper ones, two's complement."""
    return ((low.astype(np.int16) & 15) | ((high.astype(np.int16) & 15) << 4)).astype(np.uint8)
