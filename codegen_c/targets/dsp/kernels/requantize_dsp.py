"""Requantization in three instructions a sum, for processors with a high product: exactly the rounding of
`requantize.py` wherever it is used, which is decided here from the factors and the bounds of the sums.

With shift s >= 33, the rest r = s - 33 and h = floor(sum * mantissa / 2^32), rounding half up is

    floor((sum * mantissa + 2^(s - 1)) / 2^s) = floor((h + 2^r) / 2^(r + 1))

as the 32 bits below h cannot carry into it. Half up is half to even where no product is a tie. A tie needs a
sum with s - 1 - t trailing zeros, t being those of the mantissa: none has them if |sum| < 2^(s - 1 - t). The
zero point z is added before the shift: 2^r + z * 2^(r + 1) = (2 z + 1) * 2^r.

TensorFlow Lite rounds twice: the high product of the doubled sum, halves up, as one instruction does; then the
division by 2^(s - 31), here r = s - 32, halves away from zero: up after taking one off where the sum is negative
(which changes nothing where that product is rounded to zero).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.c_text.initializer import Value
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

HEADERS = (
    "tvm_ext_dsp.h", "tvm_ext_dsp_requantize.h", "tvm_ext_layer.h", "tvm_ext_requantize.h",
    "tvm_ext_requantize_tflite.h",
)  # fmt: skip
# (2 * 255 + 1) * 2^r and half of an int32's range must fit an int32 together.
MAX_REST = 20


@dataclass(frozen=True, kw_only=True, eq=False)
class FastRequantize:
    """Requantization by tvm_ext_dsp_requantize.h. is_fast: by high products; else as the portable kernels do it.

    exact: the mantissas and shifts the C code reads; where fast, shifts are those that remain behind a high product.
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
        rest = np.array([r for _, r in found], dtype=np.uint8)
        return cls(exact=replace(exact, mantissa=mantissa, shift=rest), is_fast=True)

    @classmethod
    def sixteenfold(cls, exact: Requantize, low: Array, high: Array) -> Self:
        """Requantization of 16 times the sums, as weights of 4 bits give them."""
        return cls.of_scaled(exact, low, high, bits=4)

    @classmethod
    def of_scaled(cls, exact: Requantize, low: Array, high: Array, *, bits: int) -> Self:
        """Requantization of 2^bits times the sums from low to high; TensorFlow Lite rounds the sums themselves."""
        if exact.rounding == "tflite":
            return cls.of(exact, low, high)
        return cls.of(exact.scaled(bits), low << bits, high << bits)

    @property
    def instructions(self) -> int:
        """Modelled instructions of one sum: loads of its factor are shared by the sums of a channel."""
        if self.is_fast:
            return 6 if self.exact.rounding == "onnx" else 7 if self.exact.clamps_negatives else 8
        return 20

    def members(self) -> dict[str, Value]:
        """A `tvm_ext_dsp_requantize` of tvm_ext_dsp_requantize.h."""
        exact, output = self.exact, self.exact.output
        return {
            "by_high_product": self.is_fast, "rounds_twice": exact.rounding == "tflite",
            "channel_step": 0 if exact.is_uniform else 1, "zero_point": quantization(output).zero_point,
            "low": exact.low, "high": exact.high,
        }  # fmt: skip

    def tables(self) -> list[str]:
        """Definitions of `multiplier` and `shift` where they are no parameters: one of each for all channels."""
        if not self.exact.is_uniform:
            return []
        return [
            f"static const int32_t multiplier[] = {{{self.exact.mantissa[0]}}};",
            f"static const uint8_t shift[] = {{{self.exact.shift[0]}}};",
        ]

    def constants(self) -> tuple[tuple[str, Array], ...]:
        return self.exact.constants()

    def parameters(self) -> tuple[Parameter, ...]:
        return self.exact.parameters()


def _fast(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """(mantissa, r) for sums up to `largest`, where the high product rounds as the whole one does."""
    if mantissa == 0 or largest * mantissa < 1 << (shift - 1):  # every result is the zero point
        return 0, 0
    trailing_zeros = (mantissa & -mantissa).bit_length() - 1
    no_tie = largest < 1 << max(shift - 1 - trailing_zeros, 0)
    return (mantissa, shift - 33) if 33 <= shift <= 33 + MAX_REST and no_tie else None


def _fast_tflite(mantissa: int, shift: int, largest: int) -> tuple[int, int] | None:
    """The same for TensorFlow Lite's roundings: sums that can be doubled, and something left to divide by."""
    if mantissa == 0 or (
        shift >= 32 and largest * mantissa < 1 << (shift - 2)
    ):  # below a half, also once it is rounded up
        return 0, 0
    return (mantissa, shift - 32) if 32 <= shift <= 32 + MAX_REST and largest < 1 << 30 else None
