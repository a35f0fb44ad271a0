"""Shared parts of the Helium kernels: requantization of four sums at a time, exact, and the constants it reads.

A factor is mantissa / 2^shift. The high word of sum * mantissa, shifted right by shift - 32 with rounding, is
the product rounded halves up, as its low word never carries. Halves to even differs only in ties, and a tie
needs a sum with more trailing zeros than most layers' sums have bits: where one can happen, one more comparison
takes care of it. TensorFlow Lite's two roundings are two instructions, and a correction of negative numbers between
them. So results are those of `requantize.Requantize`, bit for bit.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Target
from codegen_c.kernels.shared.high_words import DOUBLED_BITS, HighWords
from codegen_c.kernels.shared.requantize import INCLUDES as REQUANTIZE_INCLUDES
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.operators.kinds import Array, QBinary, QPool2d, TensorType

INCLUDES = (*REQUANTIZE_INCLUDES, "tvm_ext_helium.h", "tvm_ext_helium_plain.h")
LAYER_INCLUDES = (*INCLUDES, "tvm_ext_helium_rescale.h", "tvm_ext_layer.h")
PRODUCT_INCLUDES = (*LAYER_INCLUDES, "tvm_ext_helium_product.h", "tvm_ext_helium_channels.h")
LANES = 4


def rounds_once(operator: QBinary | QPool2d, target: Target) -> bool:
    """it must round once, as ONNX does; TensorFlow Lite's two roundings are left to portable kernels"""
    return operator.rounding == "onnx"


def flip(tensor: TensorType) -> int:
    """Offset from an element to the int8 of the same scale: -128 for uint8."""
    return -128 if tensor.dtype == "uint8" else 0


def signed_zero_point(tensor: TensorType) -> int:
    """The zero point of the tensor's elements once they are turned into int8."""
    return quantization(tensor).zero_point + flip(tensor)


class Rescale(HighWords):
    """A `Requantize` in vectors of four sums."""

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

    def members(self) -> dict[str, Value]:
        """A `tvm_ext_helium_rescale`."""
        finish = self.requantize
        members: dict[str, Value] = {"rounds_twice": True, "rounds_up": self._rounds_up} if self.is_twice else {}
        if self.halves_even:
            members |= {"has_ties": True}
        if self.left_shift:
            members |= {"left_shift": self.left_shift}
        return {**members, "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high}

    @property
    def _rounds_up(self) -> bool:
        """True where halves may round up: negative sums are clamped, and every factor leaves a shift."""
        shifts = self.requantize.shift[self.requantize.mantissa > 0]
        return self.requantize.clamps_negatives and bool((shifts > DOUBLED_BITS).all())

    @property
    def instructions(self) -> int:
        """Modelled instructions of the rescaling of four sums."""
        if self.is_twice:
            return 2 if self._rounds_up else 5
        return 2 + (6 if self.halves_even else 0) + (1 if self.left_shift else 0)
