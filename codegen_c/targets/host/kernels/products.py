"""conv2d and dense layers of a QDQ chain in vectors of 8 sums, with weights of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qconv2d import QCONV2D_PACKED_CONSTRAINTS
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.qdense import QDENSE_PACKED_CONSTRAINTS, DenseKernel, DenseParts
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.bit_widths import pack_pairs
from codegen_c.kernels.shared.common_shift import HighWords
from codegen_c.kernels.shared.float_factors import FloatFactors
from codegen_c.kernels.shared.layer import image, shapes, sliding_window
from codegen_c.kernels.shared.product_kernel import (
    Family,
    Loops,
    Parts,
    ProductKernel,
    room_for_sums,
)
from codegen_c.kernels.shared.requantize import INCLUDES as REQUANTIZE_INCLUDES
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.kernels.shared.winograd import for_speed
from codegen_c.operators.kinds import Array, PackedQConv2d, PackedQDense, QConv2d, QDense, TensorType, Window

# Sums in vectors of 8: their factors in the order of the lanes, and products of pixels and output channels.
#
# Activations and weights are 16-bit numbers, whose products are exact; pairs of them are added in 32 bits, modulo
# 2^32, so no order of adding changes a bit. 16 channels are a unit: two vectors, whose lanes are in the order in
# which packing them leaves bytes side by side. The loops stand in tvm_ext_host_product.h.

UNIT = 16
MOST_UNITS = 4
# Numbers of a channel in the table of factors.
NUMBERS = 6
# Channels of a unit by lane of its two vectors.
ORDER = np.array([0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15])
SUM_INCLUDES = (
    "tvm_ext_host_rescale.h", "tvm_ext_host_sums.h", "tvm_ext_i32x8.h", "tvm_ext_i32x8_plain.h", "tvm_ext_layer.h",
    *sorted({*REQUANTIZE_INCLUDES, *requantize_tflite.INCLUDES}),
)  # fmt: skip
PRODUCT_INCLUDES = ("tvm_ext_host_conv2d.h", "tvm_ext_host_product.h", "tvm_ext_host_rows.h", *SUM_INCLUDES)
FACTORS = Parameter(name="factors", ctype="int32_t", role="constant")
# Modelled instructions: from a unit's sums to its elements, and around a run of elements.
FINISH_INSTRUCTIONS = {True: 16, False: 24}
"""By whether factors are floats."""
RUN_INSTRUCTIONS = 4
# Further ones for each unit's weights of 4 bits.
UNPACK_INSTRUCTIONS = 4
WEIGHTS_BYTES = {False: 64, True: 16}
"""Bytes of two elements' weights for a unit: by whether they have 4 bits each, otherwise 16."""


def packed_parameters(*, is_packed: bool) -> tuple[Parameter, Parameter]:
    """Weights and factors of a layer. is_packed: weights have 4 bits, otherwise 16."""
    return (Parameter(name="weights", ctype="uint8_t" if is_packed else "int16_t", role="constant"), FACTORS)


def in_four_bits(weights: Array) -> Array:
    """int16[..., 2 vectors, 8 lanes, 2] -> uint8[..., 16]: numbers of the first vector in the lower four bits."""
    low, high = np.moveaxis(weights.reshape(-1, 2, UNIT), 1, 0)
    return pack_pairs(low, high)


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneRescale(HighWords):
    """A `Requantize` in vectors of eight sums; every shift of a high word is above 0.

    ranges: least and most sum of each channel, int64.
    """

    ranges: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> Self:
        return replace(super().of(requantize, low, high), ranges=(low, high))

    @cached_property
    def floats(self) -> FloatFactors | None:
        """Floats that give all sums the same elements, where there are any."""
        if self.ranges is None:
            return None
        shape = np.broadcast_shapes(self.requantize.mantissa.shape, *(bound.shape for bound in self.ranges))
        low, high = (np.broadcast_to(bound, shape) for bound in self.ranges)
        return FloatFactors.of(self.requantize, low, high)

    def fits(self, low: Array, high: Array) -> bool:
        """True where sums from low to high can be scaled up, and halves of the second rounding leave them room."""
        if not self.is_twice:
            return super().fits(low, high)
        shift = -self.factors()[1]
        largest = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1))
        return bool((shift > 0).all()) and largest + (1 << (int(shift.max()) - 1)) < 1 << 31

    def table(self, start: Array) -> Array:
        """int32[units, 6, 16]: starts, multipliers, halves, shifts, and the bits of factors and offsets as floats, by
        lane; 0 behind the last channel, shifts 1.

        start: int64[K], taken modulo 2^32.
        """
        multiplier, negative = self.factors()
        shift = -negative.astype(np.int64)
        rows = np.zeros((NUMBERS, -(-len(start) // UNIT) * UNIT), dtype=np.int32)
        rows[2:4] = 1
        floats = (
            (0, 0) if self.floats is None else (self.floats.factors.view(np.int32), self.floats.offsets.view(np.int32))
        )
        wrapped = (start & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        for row, values in zip(rows, (wrapped, multiplier, 1 << (shift - 1), shift, *floats), strict=False):
            row[: len(start)] = values
        return np.ascontiguousarray(rows.reshape(NUMBERS, -1, UNIT).transpose(1, 0, 2)[:, :, ORDER])

    @property
    def finish_instructions(self) -> int:
        """Modelled instructions from a unit's sums to its elements."""
        return FINISH_INSTRUCTIONS[self.floats is not None]

    def members(self) -> dict[str, Value]:
        """A `tvm_ext_host_rescale`."""
        finish = self.requantize
        members: dict[str, Value] = {"rounds_twice": True} if self.is_twice else {}
        members |= {"has_ties": True} if self.halves_even else {}
        members |= {"has_floats": True} if self.floats is not None else {}
        members |= {"is_unsigned": True} if finish.output.dtype == "uint8" else {}
        members |= {"left_shift": self.left_shift} if self.left_shift else {}
        return {**members, "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high}


@dataclass(frozen=True, kw_only=True, eq=False)
class PixelProduct:
    """`runs` runs of `length` elements each times `channels` channels.

    is_widened: elements are read as 16-bit numbers; is_unsigned: those of 8 bits are uint8. is_packed: weights have 4
    bits, otherwise 16.
    """

    runs: int
    length: int
    channels: int
    rescale: LaneRescale
    is_widened: bool
    is_unsigned: bool
    is_packed: bool

    @property
    def units(self) -> int:
        """Units side by side: as many in each block as in any other, but for the last."""
        total = -(-self.channels // UNIT)
        return -(-total // -(-total // MOST_UNITS))

    def members(self) -> dict[str, Value]:
        """A `tvm_ext_host_product`."""
        return {
            "runs": self.runs, "length": self.length, "channels": self.channels, "units": self.units,
            "is_widened": self.is_widened, "is_unsigned": self.is_unsigned, "is_packed": self.is_packed,
            "rescale": self.rescale.members(),
        }  # fmt: skip

    def pack(self, weight: Array) -> Array:
        """int8[K, ...] -> int16 or 4 bits, block after block of units: [runs][pairs][units][16 lanes][2]."""
        flat = weight.reshape(self.channels, self.runs, self.length)
        full = np.zeros((-(-self.channels // UNIT) * UNIT, self.runs, -(-self.length // 2) * 2), dtype=np.int16)
        full[: self.channels, :, : self.length] = flat
        units = full.reshape(-1, UNIT, self.runs, full.shape[2] // 2, 2)[:, ORDER].transpose(2, 3, 0, 1, 4)
        blocks = [units[:, :, first : first + self.units] for first in range(0, units.shape[2], self.units)]
        packed = np.concatenate([block.ravel() for block in blocks])
        return in_four_bits(packed) if self.is_packed else packed

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Packed weights, and the table of starts and factors."""
        return (("weights", self.pack(weight)), ("factors", self.rescale.table(start)))

    @property
    def instructions(self) -> int:
        """Modelled instructions of one pixel."""
        units = -(-self.channels // UNIT)
        blocks, pairs = -(-units // self.units), self.runs * -(-self.length // 2)
        reading = blocks * (pairs * (1 if self.is_widened else 2) + self.runs * RUN_INSTRUCTIONS)
        products = 4 + (UNPACK_INSTRUCTIONS if self.is_packed else 0)
        return reading + units * (pairs * products + self.rescale.finish_instructions)


# conv2d of a QDQ chain in vectors of 8 sums: one output pixel by up to 64 channels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32, modulo 2^32. Rows that
# windows read are copied to scratch as 16-bit numbers, padding filled in with the zero point. Either rounding.

LAYER = "tvm_ext_host_conv2d_layer"
LOOPS = Loops(
    function="tvm_ext_host_conv2d", layer=LAYER, includes=PRODUCT_INCLUDES,
    accumulation="products with r, s, c ascending in pairs, modulo 2^32",
)  # fmt: skip
STORED_AT_ONCE = 16
"""Numbers that copies of rows store at once."""


def has_no_groups(operator: QConv2d, target: Target) -> bool:
    """the convolution must not have groups"""
    return operator.groups == 1


def rescale(operator: QConv2d) -> LaneRescale:
    return LaneRescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


sums_leave_room = room_for_sums(rescale, qconv2d.bounds, least_factor="one half")


def start(operator: QConv2d) -> Array:
    """int64[K]: bias less the zero point times all weights, as padding is read like the input."""
    zero_point = quantization(operator.inputs[0]).zero_point
    taps = operator.weight.reshape(operator.weight.shape[0], -1).astype(np.int64)
    return operator.bias.astype(np.int64) - zero_point * taps.sum(axis=1)


def row_numbers(window: Window, source: TensorType, pitch: int) -> int:
    """16-bit numbers of a row with its padding, whose pixels lie `pitch` apart."""
    return (window.padding[1] + source.shape[2] + window.padding[3]) * pitch


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output, window = operator.inputs[0], operator.output, operator.window
    depth, channels = source.shape[3], output.shape[3]
    turn = 1 if window.dilation[1] == 1 else window.kernel[1]
    product = PixelProduct(
        runs=window.kernel[0] * turn, length=window.kernel[1] // turn * depth, channels=channels,
        rescale=rescale(operator), is_widened=True, is_unsigned=source.dtype == "uint8",
        is_packed=isinstance(operator, PackedQConv2d),
    )  # fmt: skip
    num_pixels = output.num_elements // channels
    copied = window.kernel[0] * row_numbers(window, source, depth)
    return Parts(
        parameters=packed_parameters(is_packed=product.is_packed),
        constants=product.constants(operator.weight, start(operator)),
        members={"product": product.members()},
        scratch_bytes=2 * (copied + STORED_AT_ONCE),
        instructions=num_pixels * product.instructions + output.shape[0] * output.shape[1] * copied * 3 // 16,
        passes=Passes.of_product(
            output.num_elements * operator.weight[0].size, source.num_elements, num_pixels, pixels=1,
            channels=UNIT * MOST_UNITS,
        ),
        grows_weights=not product.is_packed,
    )  # fmt: skip


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_host",
        operator=QConv2d,
        constraints=(for_speed, has_no_groups, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
# Weights of 4 bits: the loops take bytes apart.
QCONV2D_PACKED = CONVOLUTION.kernel(
    Family(
        name="qconv2d_packed_host",
        operator=PackedQConv2d,
        constraints=(has_no_groups, *QCONV2D_PACKED_CONSTRAINTS, sums_leave_room),
    )
)


# Dense layer of a QDQ chain in vectors of 8 sums: one vector by up to 64 output channels at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], sums in int32, modulo 2^32. Vectors are pixels that are
# read in place. Layers that come or go by rows are portable C's. Either rounding.


def _rescale(operator: QDense) -> LaneRescale:
    return LaneRescale.of(qdense.requantize(operator), *qdense.products(operator).range())


qdense_sums_leave_room = room_for_sums(_rescale, qdense.bounds, least_factor="one half")


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    source, output, (channels, depth) = operator.inputs[0], operator.output, operator.weight.shape
    vectors = output.num_elements // channels
    product = PixelProduct(
        runs=1, length=depth, channels=channels, rescale=_rescale(operator), is_widened=False,
        is_unsigned=source.dtype == "uint8", is_packed=isinstance(operator, PackedQDense),
    )  # fmt: skip
    layer = shapes(LAYER, {
        "input": image(replace(source, shape=(1, 1, vectors, depth))),
        "output": image(replace(output, shape=(1, 1, vectors, channels))),
        "window": sliding_window(Window(kernel=(1, 1))),
        "product": product.members(),
    })  # fmt: skip
    parts = DenseParts(
        parameters=packed_parameters(is_packed=product.is_packed),
        constants=product.constants(operator.weight, qdense.products(operator).start),
        body="tvm_ext_host_vectors(&$_layer, input, output, weights, factors);",
        helpers=layer,
        includes=PRODUCT_INCLUDES,
        instructions=vectors * product.instructions,
        passes=Passes.of_product(
            output.num_elements * depth, source.num_elements, vectors, pixels=1, channels=UNIT * MOST_UNITS
        ),
        accumulation="products with c ascending in pairs, modulo 2^32",
        grows_weights=not product.is_packed,
    )
    return lambda _: parts


QDENSE = DenseKernel(name="qdense_host", layer=dense_layer, has_rows=lambda _: False).kernel(
    (for_speed, *qdense.CONSTRAINTS, qdense_sums_leave_room)
)


# Dense layer of a QDQ chain whose weights have 4 bits each, in vectors of 8 sums: py, taking bytes apart.
#
# int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], sums in int32, modulo 2^32.

QDENSE_PACKED = DenseKernel(name="qdense_packed_host", layer=dense_layer).packed(
    (*QDENSE_PACKED_CONSTRAINTS, qdense_sums_leave_room)
)


KERNELS = (QCONV2D, QCONV2D_PACKED, QDENSE, QDENSE_PACKED)
