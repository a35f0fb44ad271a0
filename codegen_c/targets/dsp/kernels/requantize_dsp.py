"""Requantization in three instructions a sum, for processors with a high product: exactly the rounding of
`requantize.py` wherever it is used, which is decided here from the factors and the bounds of the sums.

With shift s >= 33, half = s - 33 and h = floor(sum * mantissa / 2^32), rounding half up is

    floor((sum * mantissa + 2^(s - 1)) / 2^s) = floor((h + 2^half) / 2^(half + 1))

as the 32 bits below h cannot carry into it. Half up is half to even where no product is a tie. A tie needs a
sum with s - 1 - t trailing zeros, t being those of the mantissa: none has them if |sum| < 2^(s - 1 - t). The
zero point z is added before the shift: 2^half + z * 2^(half + 1) = (2 z + 1) * 2^half.

TensorFlow Lite rounds twice: the high product of the doubled sum, halves up, as one instruction does; then the
division by 2^(s - 31), here half = s - 32, halves away from zero: up after taking one off where the sum is negative
(which changes nothing where that product is rounded to zero).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, block
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

# (2 * 255 + 1) * 2^half and half of an int32's range must fit an int32 together.
MAX_HALF = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class FastRequantize:
    """The interface of Requantize. is_fast: by high products; else as the portable kernels do it.

    exact: the mantissas and shifts the C code reads; where fast, `half` instead of shifts.
    """

    exact: Requantize
    is_fast: bool

    @classmethod
    def of(cls, exact: Requantize, low: Array, high: Array) -> Self:
        """low, high: bounds of the sums, int64, one pair for each factor (or one for all)."""
        largest = np.broadcast_to(np.maximum(np.abs(low), np.abs(high)), np.shape(low)).astype(np.int64)
        largest = largest.max(keepdims=True) if exact.is_uniform else largest
        fast = _fast if exact.rounding == "onnx" else _fast_tflite
        pairs = [fast(int(m), int(s), int(b)) for m, s, b in zip(exact.mantissa, exact.shift, largest, strict=True)]
        found = [pair for pair in pairs if pair is not None]
        if len(found) < len(pairs):
            return cls(exact=exact, is_fast=False)
        mantissa = np.array([m for m, _ in found], dtype=np.int32)
        half = np.array([h for _, h in found], dtype=np.uint8)
        return cls(exact=replace(exact, mantissa=mantissa, shift=half), is_fast=True)

    @property
    def includes(self) -> tuple[str, ...]:
        """Headers the helper needs."""
        return ("tvm_ext_dsp.h", *self.exact.includes)

    @property
    def instructions(self) -> int:
        """Modelled, of one sum: loads of its factor are shared by the sums of a channel."""
        if self.is_fast:
            return 6 if self.exact.rounding == "onnx" else 7 if self.exact.clamps_negatives else 8
        return 20

    def helper(self) -> str:
        """Definition of the function."""
        if not self.is_fast:
            return self.exact.helper()
        output, limits = self.exact.output, np.iinfo(self.exact.output.dtype)
        rounding = 2 * quantization(output).zero_point + 1
        tables = "" if self.exact.is_uniform else ", int32_t multiplier, int32_t half"
        if self.exact.is_uniform:
            multiplier, half = str(self.exact.mantissa[0]), int(self.exact.shift[0])
            added, shift = str(rounding << half), str(half + 1)
        else:
            # Multiplied, as C does not shift negative numbers to the left; compilers make it a shift.
            multiplier, added, shift = "multiplier", f"{rounding} * (1 << half)", "half + 1"
        saturated = f"tvm_ext_dsp_saturate_{'s8' if limits.min < 0 else 'u8'}(value)"
        if (self.exact.low, self.exact.high) != (limits.min, limits.max):
            saturated = f"tvm_ext_clamp(value, {self.exact.low}, {self.exact.high})"
        high = f"tvm_ext_dsp_high_product(sum, {multiplier}, {added})"
        if self.exact.rounding == "tflite":
            high = f"tvm_ext_dsp_high_product_rounded(sum * 2, {multiplier}, {added})"
            # Halves away from zero are halves up but for sums below zero.
            high = high if self.exact.clamps_negatives else f"({high} + (sum >> 31))"
        lines = [
            f"const int32_t value = {high} >> {_parenthesized(shift)};",
            f"return ({C_TYPES[output.dtype]}){saturated};",
        ]
        head = f"static inline {C_TYPES[output.dtype]} $_requantize(int32_t sum{tables})"
        return f"{head}\n{{\n{block(lines)}\n}}\n"

    def call(self, value: str, index: str) -> str:
        """C expression of the element; `index` finds the factor in the tables."""
        return self.exact.call(value, index)

    def constants(self) -> tuple[tuple[str, Array], ...]:
        return self.exact.constants()

    def parameters(self) -> tuple[Parameter, ...]:
        return self.exact.parameters()


def _fast(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """(mantissa, half) for sums up to `largest`, where the high product rounds as the whole one does."""
    if mantissa == 0 or largest * mantissa < 1 << (shift - 1):  # every result is the zero point
        return 0, 0
    trailing_zeros = (mantissa & -mantissa).bit_length() - 1
    no_tie = largest < 1 << max(shift - 1 - trailing_zeros, 0)
    return (mantissa, shift - 33) if 33 <= shift <= 33 + MAX_HALF and no_tie else None


def _fast_tflite(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """The same for TensorFlow Lite's roundings: sums that can be doubled, and something left to divide by."""
    if mantissa == 0 or (
        shift >= 32 and largest * mantissa < 1 << (shift - 2)
    ):  # below a half, also once it is rounded up
        return 0, 0
    return (mantissa, shift - 32) if 32 <= shift <= 32 + MAX_HALF and largest < 1 << 30 else None


def _parenthesized(expression: str) -> str:
    return f"({expression})" if " " in expression else expression
