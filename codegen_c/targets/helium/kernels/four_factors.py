"""Factors of requantization for the Helium product of four pixels: one shift for all channels, or one of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.shared.float_factors import beginnings
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

# Factors of one shift for all channels that give every sum of a layer the element of its exact factor.
#
# `Requantize` rounds sum * factor once or twice, and each channel's factor has its own shift. Vectors narrow by one
# shift, which is part of the instruction. An element grows with its sum, so two factors agree for all sums if each
# element begins at the same sum; each of these sums bounds the other factor's multiplier from one side. If the bounds
# leave a number, results are those of `Requantize`, bit for bit.

# An element is sum * multiplier >> PRODUCT_BITS, rounded by the shift, halves up.
PRODUCT_BITS = 31
# Order of trials: one shift for most layers of a network lets them share a function.
SHIFTS = (5, 6, 4, 7, 8, 3, 9, 10, 2, 11, 12, 13, 1, 14, 15, 16)


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowFactors:
    """Factors of one common shift. multipliers: int32[K], at least 0. shift: of the narrowing, 1 to 16."""

    multipliers: Array
    shift: int

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> NarrowFactors | None:
        """Return factors for sums from low to high, int64[K] each; None if there are none.

        There are none if elements are clamped to other bounds than their type's, or if no multipliers agree.
        """
        limits = np.iinfo(requantize.output.dtype)
        if limits.bits != 8 or (requantize.low, requantize.high) != (limits.min, limits.max):
            return None
        begins = beginnings(requantize, low, high)
        if begins is None:
            return None
        elements = np.arange(limits.min + 1, limits.max + 1) - quantization(requantize.output).zero_point
        for shift in SHIFTS:
            bound = ((2 * elements - 1) << (PRODUCT_BITS + shift - 1))[:, None]
            least, most = _multipliers(begins, low, high, bound)
            if (least <= most).all():
                return cls(multipliers=((least + most) // 2).astype(np.int32), shift=shift)
        return None

    def rows(self) -> tuple[Array, ...]:
        """Return the stored factors of each channel."""
        return (self.multipliers,)

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_helium_fours`."""
        return {"shift": self.shift}


def _multipliers(begins: Array, low: Array, high: Array, bound: Array) -> tuple[Array, Array]:
    """Return the least and most multiplier of each channel, int64[K]; the least is above the most if there is none.

    With these, sum * multiplier >= bound from an element's first sum on, and < bound before it. bound: int64[elements,
    1] or [elements, K].
    """
    least, most = _bounds(begins, bound, begins <= high)
    before_least, before_most = _bounds(1 - begins, 1 - bound, begins > low)
    return np.maximum(least, before_least), np.minimum(most, before_most)


def _bounds(sums: Array, bound: Array, holds: Array) -> tuple[Array, Array]:
    """Return the least and most multiplier with sum * multiplier >= bound wherever `holds`; 1 to 0 for none."""
    positive, negative = holds & (sums > 0), holds & (sums < 0)
    divisor = np.where(sums == 0, 1, np.abs(sums))
    least = np.where(positive, -(-bound // divisor), 0).max(axis=0, initial=0)
    most = np.where(negative, -bound // divisor, (1 << PRODUCT_BITS) - 1).min(axis=0, initial=(1 << PRODUCT_BITS) - 1)
    never = (holds & (sums == 0) & (bound > 0)).any(axis=0)
    return np.where(never, 1, least), np.where(never, 0, most)


# TensorFlow Lite's two roundings: rounded high products, and a shift of each channel that rounds halves up.
#
# TensorFlow Lite rounds halves below zero down. This changes no element of a layer whose negative sums are clamped. In
# other layers products below zero are decreased by one first, which is one instruction more.

MOST_OWN_SHIFT = 31


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundedFactors:
    """Factors of TensorFlow Lite's roundings. multipliers: int32[K]. shifts: int32[K], of the products.

    is_signed: negative sums reach elements above the least one, so that their halves matter.
    """

    multipliers: Array
    shifts: Array
    is_signed: bool

    @classmethod
    def of(cls, requantize: Requantize) -> RoundedFactors | None:
        """Return the factors of any sums; None if it rounds otherwise, clamps to other bounds, or scales sums up."""
        limits = np.iinfo(requantize.output.dtype)
        is_whole = limits.bits == 8 and (requantize.low, requantize.high) == (limits.min, limits.max)
        if requantize.rounding != "tflite" or not is_whole:
            return None
        is_signed = not requantize.clamps_negatives
        shifts = np.where(requantize.mantissa == 0, 1, requantize.shift.astype(np.int32) - PRODUCT_BITS)
        if (shifts < int(is_signed)).any() or (shifts > MOST_OWN_SHIFT).any():
            return None  # without a shift, the second rounding changes nothing below zero either
        return cls(multipliers=requantize.mantissa, shifts=shifts, is_signed=is_signed)

    def rows(self) -> tuple[Array, ...]:
        """Return the stored factors of each channel. The instruction takes negative shifts to the right."""
        return (self.multipliers, -self.shifts)

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_helium_fours`."""
        return {"shift": 0, "rounds_twice": True, **({"is_signed": True} if self.is_signed else {})}
