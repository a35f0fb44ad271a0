"""Shared parts of the kernels of RISC-V's vectors: requantization of sums, exact, and the constants it reads.

A layer's sums of a pixel are stored, then requantized a group of registers at a time, by high words of products
(high_words.py). Where some sum may lie halfway between two results, halves go to even by a few instructions more.
"""

from __future__ import annotations

from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.high_words import HighWords
from codegen_c.kernels.shared.requantize import Products, quantization
from codegen_c.operators.kinds import Array, QConv2d

HEADERS = (
    "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h", "tvm_ext_rvv.h",
    "tvm_ext_rvv_requantize.h",
)  # fmt: skip
PARAMETERS = (
    Parameter(name="weights", ctype="int8_t", role="constant"),
    Parameter(name="factors", ctype="int32_t", role="constant"),
)
SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")
SUM_BYTES = 4
REGISTER_BYTES = 16
"""Bytes of a vector register that costs are modelled for: the shortest there are."""


def num_groups(channels: int, registers: int) -> int:
    """Groups of so many registers that hold sums of all channels."""
    return -(-channels * SUM_BYTES // (registers * REGISTER_BYTES))


class GroupedRescale(HighWords):
    """A `Requantize` in groups of registers."""

    @classmethod
    def of_convolution(cls, operator: QConv2d) -> Self:
        return cls.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())

    def constants(self, weights: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Weights as they come; starts, multipliers and shifts: int32[3, K]. start: int64[K], taken modulo 2^32."""
        multiplier, shift = (np.broadcast_to(array, len(start)) for array in self.factors())
        wrapped = (start & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        return (("weights", np.ascontiguousarray(weights)), ("factors", np.stack([wrapped, multiplier, -shift])))

    def members(self) -> dict[str, Value]:
        """A `tvm_ext_rvv_rescale`."""
        finish = self.requantize
        return {
            "rounds_twice": self.is_twice, "has_ties": self.halves_even, "left_shift": self.left_shift,
            "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high,
        }  # fmt: skip

    def instructions(self, channels: int) -> int:
        """Modelled instructions of the sums of one pixel."""
        if self.halves_even:
            return 20 + 32 * num_groups(channels, 4)
        return 20 + (25 if self.is_twice else 22) * num_groups(channels, 8)


def sums_leave_room(operator: QConv2d, target: Target) -> bool:
    """where a channel's factor is one quarter or more, its sums must be small enough to be scaled up"""
    return GroupedRescale.of_convolution(operator).fits(*qconv2d.products(operator).range())


def start_of(operator: QConv2d) -> Array:
    """Initial sums of x * w, int64[K]: bias less zero point times weights; padding is then a zero point."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=False).start
