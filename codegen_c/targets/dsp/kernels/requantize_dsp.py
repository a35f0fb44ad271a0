"""Requantization in three instructions a sum, for processors with a high product: exactly the rounding of
`requantize.py` wherever it is used, which `high_product.py` decides from the factors and the bounds of the sums.

The zero point z is added before the shift: 2^r + z * 2^(r + 1) = (2 z + 1) * 2^r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared.high_product import by_high_products
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.operators.kinds import Array

HEADERS = (
    "tvm_ext_dsp.h", "tvm_ext_dsp_requantize.h", "tvm_ext_layer.h", "tvm_ext_requantize.h",
    "tvm_ext_requantize_tflite.h",
)  # fmt: skip


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
        found = by_high_products(exact, low, high)
        return cls(exact=found, is_fast=found.is_behind_high_products)

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
