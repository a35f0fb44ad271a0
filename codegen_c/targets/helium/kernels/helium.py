"""Shared parts of the Helium kernels: requantization of four sums at a time, exact, and the constants it reads.

A factor is mantissa / 2^shift. The high word of sum * mantissa, shifted right by shift - 32 with rounding, is
the product rounded halves up, as its low word never carries. Halves to even differs only in ties, and a tie
needs a sum with more trailing zeros than most layers' sums have bits: where one can happen, one more comparison
takes care of it. TensorFlow Lite's two roundings are two instructions, and a correction of negative numbers between
them. So results are those of `requantize.Requantize`, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.kernels.contract import Target
from codegen_c.kernels.shared.requantize import INCLUDES as REQUANTIZE_INCLUDES
from codegen_c.kernels.shared.requantize import MAX_SHIFT, Requantize, quantization
from codegen_c.operators.kinds import Array, QBinary, QPool2d, TensorType

INCLUDES = (*REQUANTIZE_INCLUDES, "tvm_ext_helium.h", "tvm_ext_helium_plain.h")
PRODUCT_INCLUDES = (*INCLUDES, "tvm_ext_helium_product.h")
LANES = 4
WORD_BITS = 32
# Rounding takes a shift of at least one beyond the high word of the product.
LEAST_SHIFT = WORD_BITS + 1
# TensorFlow Lite takes the high word of the doubled product.
DOUBLED_BITS = WORD_BITS - 1


def rounds_once(operator: QBinary | QPool2d, target: Target) -> bool:
    """it must round once, as ONNX does; TensorFlow Lite's two roundings are left to portable kernels"""
    return operator.rounding == "onnx"


def flip(tensor: TensorType) -> int:
    """Offset from an element to the int8 of the same scale: -128 for uint8."""
    return -128 if tensor.dtype == "uint8" else 0


def copy(tensor: TensorType, target: str, source: str, count: int | str) -> str:
    """Statement that copies elements of a tensor as int8."""
    return f"tvm_ext_copy_{'u8' if flip(tensor) else 'i8'}({target}, {source}, {count});"


def signed_zero_point(tensor: TensorType) -> int:
    """The zero point of the tensor's elements once they are turned into int8."""
    return quantization(tensor).zero_point + flip(tensor)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rescale:
    """A `Requantize` in vectors of four sums.

    left_shift: by which sums are scaled up first so that every shift reaches beyond the high word.
    halves_even: whether some sum may lie halfway between two results.
    """

    requantize: Requantize
    left_shift: int
    halves_even: bool

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> Self:
        """Rescaling of sums from low to high, int64, one each or one per channel."""
        if requantize.rounding == "tflite":
            return cls(requantize=requantize, left_shift=0, halves_even=False)
        mantissa, shift = requantize.mantissa.astype(np.int64), requantize.shift.astype(np.int64)
        least = int(shift[mantissa > 0].min(initial=LEAST_SHIFT))
        bits = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1)).bit_length()
        zeros = np.array([_trailing_zeros(int(m)) for m in mantissa])
        ties = (mantissa > 0) & (shift - 1 - zeros < bits)
        return cls(requantize=requantize, left_shift=max(0, LEAST_SHIFT - least), halves_even=bool(ties.any()))

    def fits(self, low: Array, high: Array) -> bool:
        """True where sums from low to high can be scaled up; with two roundings, no factor may need that."""
        if self._is_twice and (self.requantize.shift[self.requantize.mantissa > 0] < DOUBLED_BITS).any():
            return False
        largest = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1))
        return largest << self.left_shift < 1 << (WORD_BITS - 1)

    def factors(self) -> tuple[Array, Array]:
        """(multiplier, shift) as the code reads them, int32 each: shifts are negative, of the product's high word."""
        if self._is_twice:
            shift = np.where(self.requantize.mantissa == 0, -1, DOUBLED_BITS - self.requantize.shift.astype(np.int32))
            return self.requantize.mantissa, shift.astype(np.int32)
        shift = self.requantize.shift.astype(np.int64) + self.left_shift
        vanish = (self.requantize.mantissa == 0) | (shift > MAX_SHIFT + 1)
        multiplier = np.where(vanish, 0, self.requantize.mantissa)
        return multiplier.astype(np.int32), np.where(vanish, -1, WORD_BITS - shift).astype(np.int32)

    def table(self, start: Array, order: Array) -> Array:
        """int32[blocks, 3, width]: starts, multipliers and shifts of each block of channels, zeros behind the last.

        start: int64[K], taken modulo 2^32. order: int[width], which channel of a block is in which lane.
        """
        width, num_channels = len(order), len(start)
        multiplier, shift = (np.broadcast_to(array, num_channels) for array in self.factors())
        wrapped = (start & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        rows = np.zeros((3, -(-num_channels // width) * width), dtype=np.int32)
        rows[2] = -1
        rows[:, :num_channels] = wrapped, multiplier, shift
        return np.ascontiguousarray(rows.reshape(3, -1, width).transpose(1, 0, 2)[:, :, order])

    def scaled(self, value: str, multiplier: str, shift: str) -> str:
        """C expression: a vector of sums, rescaled and rounded."""
        if self._is_twice:
            # Halves away from zero are halves up but for sums below zero.
            function = "round_shift" if self._rounds_up else "shift_away"
            return f"tvm_ext_i32x4_{function}(tvm_ext_i32x4_multiply_doubled({value}, {multiplier}), {shift})"
        value = f"tvm_ext_i32x4_shift({value}, {self.left_shift})" if self.left_shift else value
        high = f"tvm_ext_i32x4_multiply_high({value}, {multiplier})"
        if not self.halves_even:
            return f"tvm_ext_i32x4_round_shift({high}, {shift})"
        return f"tvm_ext_i32x4_round_shift_even({high}, tvm_ext_i32x4_multiply({value}, {multiplier}), {shift})"

    @property
    def _is_twice(self) -> bool:
        return self.requantize.rounding == "tflite"

    @property
    def _rounds_up(self) -> bool:
        """True where halves may round up: negative sums are clamped, and every factor leaves a shift."""
        shifts = self.requantize.shift[self.requantize.mantissa > 0]
        return self.requantize.clamps_negatives and bool((shifts > DOUBLED_BITS).all())

    @property
    def instructions(self) -> int:
        """Modelled instructions of `scaled`."""
        if self._is_twice:
            return 2 if self._rounds_up else 5
        return 2 + (6 if self.halves_even else 0) + (1 if self.left_shift else 0)


@dataclass(frozen=True, kw_only=True)
class OutputRange:
    """Conversion of rescaled results to bytes of the output: zero point, clamp, narrowing."""

    output: TensorType
    low: int
    high: int

    @property
    def are_int8(self) -> bool:
        return self.output.dtype == "int8" and (self.low, self.high) == (-128, 127)

    def shifted(self, value: str) -> str:
        """C expression: 16-bit results with the zero point added, clamped unless narrowing to int8 does it."""
        zero_point = quantization(self.output).zero_point
        value = f"tvm_ext_i16x8_add_n({value}, {zero_point})" if zero_point else value
        return value if self.are_int8 else f"tvm_ext_i16x8_clamp({value}, {self.low}, {self.high})"

    def pairs(self, value: str) -> str:
        """C expression: results whose low bytes can be stored."""
        return f"tvm_ext_i16x8_limited({self.shifted(value)})" if self.are_int8 else self.shifted(value)

    def bytes(self, even: str, odd: str) -> str:
        """C expression: a vector of bytes from results of even and of odd lanes."""
        function = "tvm_ext_i8x16_limited" if self.are_int8 else "tvm_ext_i8x16_of"
        return f"{function}({self.shifted(even)}, {self.shifted(odd)})"


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 0
