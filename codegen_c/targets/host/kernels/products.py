"""Kernels for quantized convolutions and dense layers on the host, in vectors of 8 accumulators.

Weights have 8 or 4 bits.
"""

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

# Accumulators in vectors of 8: factors in the order of the lanes, and products of pixels and output channels.
#
# Activations and weights are 16-bit numbers with exact products. Pairs of products are added in 32 bits modulo 2^32, so
# the order of additions does not change a bit. A unit is 16 channels in two vectors; their lanes are ordered so that
# the pack instructions leave the bytes of the channels in memory order. The loops are in tvm_ext_host_product.h.

UNIT = 16
MOST_UNITS = 4
# Numbers per channel in the table of factors.
NUMBERS = 6
# Channel of each lane in the two vectors of a unit.
ORDER = np.array([0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15])
SUM_INCLUDES = (
    "tvm_ext_host_rescale.h", "tvm_ext_host_sums.h", "tvm_ext_i32x8.h", "tvm_ext_i32x8_plain.h", "tvm_ext_layer.h",
    *sorted({*REQUANTIZE_INCLUDES, *requantize_tflite.INCLUDES}),
)  # fmt: skip
PRODUCT_INCLUDES = ("tvm_ext_host_conv2d.h", "tvm_ext_host_product.h", "tvm_ext_host_rows.h", *SUM_INCLUDES)
FACTORS = Parameter(name="factors", ctype="int32_t", role="constant")
# Modelled instructions: from the accumulators of a unit to its elements, and around a run of elements.
FINISH_INSTRUCTIONS = {True: 16, False: 24}
"""Key: True if the factors are floats."""
RUN_INSTRUCTIONS = 4
# Additional instructions per unit if weights have 4 bits.
UNPACK_INSTRUCTIONS = 4
WEIGHTS_BYTES = {False: 64, True: 16}
"""Bytes of the weights of two elements for a unit. Key: True if weights have 4 bits, False if they have 16."""


def packed_parameters(*, is_packed: bool) -> tuple[Parameter, Parameter]:
    """Return the parameters for weights and factors. is_packed: weights have 4 bits, otherwise 16."""
    return (Parameter(name="weights", ctype="uint8_t" if is_packed else "int16_t", role="constant"), FACTORS)


def in_four_bits(weights: Array) -> Array:
    """Pack int16[..., 2 vectors, 8 lanes, 2] as uint8[..., 16], the first vector in the lower four bits."""
    low, high = np.moveaxis(weights.reshape(-1, 2, UNIT), 1, 0)
    return pack_pairs(low, high)


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneRescale(HighWords):
    """`Requantize` in vectors of eight accumulators; every shift of a high word is above 0.

    ranges: least and greatest accumulator of each channel, int64.
    """

    ranges: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> Self:
        return replace(super().of(requantize, low, high), ranges=(low, high))

    @cached_property
    def floats(self) -> FloatFactors | None:
        """Return float factors that give the same element for every accumulator, or None if there are none."""
        if self.ranges is None:
            return None
        shape = np.broadcast_shapes(self.requantize.mantissa.shape, *(bound.shape for bound in self.ranges))
        low, high = (np.broadcast_to(bound, shape) for bound in self.ranges)
        return FloatFactors.of(self.requantize, low, high)

    def fits(self, low: Array, high: Array) -> bool:
        """Return True if accumulators from low to high can be scaled up without overflow, both roundings included."""
        if not self.is_twice:
            return super().fits(low, high)
        shift = -self.factors()[1]
        largest = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1))
        return bool((shift > 0).all()) and largest + (1 << (int(shift.max()) - 1)) < 1 << 31

    def table(self, start: Array) -> Array:
        """Return the table of factors by lane, int32[units, 6, 16].

        Rows: initial accumulators, multipliers, halves, shifts, and the bits of float factors and offsets. Lanes after
        the last channel are 0, and their shifts 1. start: int64[K], taken modulo 2^32.
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
        """Return the modelled instructions from the accumulators of a unit to its elements."""
        return FINISH_INSTRUCTIONS[self.floats is not None]

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_host_rescale`."""
        finish = self.requantize
        members: dict[str, Value] = {"rounds_twice": True} if self.is_twice else {}
        members |= {"has_ties": True} if self.halves_even else {}
        members |= {"has_floats": True} if self.floats is not None else {}
        members |= {"is_unsigned": True} if finish.output.dtype == "uint8" else {}
        members |= {"left_shift": self.left_shift} if self.left_shift else {}
        return {**members, "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high}


@dataclass(frozen=True, kw_only=True, eq=False)
class PixelProduct:
    """Products of `runs` runs of `length` elements each with the weights of `channels` channels.

    is_widened: elements are read as 16-bit numbers. is_unsigned: elements of 8 bits are uint8. is_packed: weights have
    4 bits, otherwise 16.
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
        """Return the units of a block: the same in every block, except that the last may have fewer."""
        total = -(-self.channels // UNIT)
        return -(-total // -(-total // MOST_UNITS))

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_host_product`."""
        return {
            "runs": self.runs, "length": self.length, "channels": self.channels, "units": self.units,
            "is_widened": self.is_widened, "is_unsigned": self.is_unsigned, "is_packed": self.is_packed,
            "rescale": self.rescale.members(),
        }  # fmt: skip

    def pack(self, weight: Array) -> Array:
        """Pack int8[K, ...] as int16 or 4 bits, block by block of units: [runs][pairs][units][16 lanes][2]."""
        flat = weight.reshape(self.channels, self.runs, self.length)
        full = np.zeros((-(-self.channels // UNIT) * UNIT, self.runs, -(-self.length // 2) * 2), dtype=np.int16)
        full[: self.channels, :, : self.length] = flat
        units = full.reshape(-1, UNIT, self.runs, full.shape[2] // 2, 2)[:, ORDER].transpose(2, 3, 0, 1, 4)
        blocks = [units[:, :, first : first + self.units] for first in range(0, units.shape[2], self.units)]
        packed = np.concatenate([block.ravel() for block in blocks])
        return in_four_bits(packed) if self.is_packed else packed

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Return the packed weights, and the table of initial accumulators and factors."""
        return (("weights", self.pack(weight)), ("factors", self.rescale.table(start)))

    @property
    def instructions(self) -> int:
        """Return the modelled instructions of one pixel."""
        units = -(-self.channels // UNIT)
        blocks, pairs = -(-units // self.units), self.runs * -(-self.length // 2)
        reading = blocks * (pairs * (1 if self.is_widened else 2) + self.runs * RUN_INSTRUCTIONS)
        products = 4 + (UNPACK_INSTRUCTIONS if self.is_packed else 0)
        return reading + units * (pairs * products + self.rescale.finish_instructions)


# Quantized convolution on the host, in vectors of 8 accumulators: up to 64 channels of one output pixel at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], int32 accumulators modulo 2^32. The rows
# that windows read are copied to scratch as 16-bit numbers, with the zero point as padding. Rounding "onnx" or
# "tflite".

LAYER = "tvm_ext_host_conv2d_layer"
LOOPS = Loops(
    function="tvm_ext_host_conv2d", layer=LAYER, includes=PRODUCT_INCLUDES,
    accumulation="products with r, s, c ascending in pairs, modulo 2^32",
)  # fmt: skip
STORED_AT_ONCE = 16
"""16-bit numbers that the copy of a row stores at once."""


def has_no_groups(operator: QConv2d, target: Target) -> bool:
    """the convolution must not have groups"""
    return operator.groups == 1


def rescale(operator: QConv2d) -> LaneRescale:
    return LaneRescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


sums_leave_room = room_for_sums(rescale, qconv2d.bounds, least_factor="one half")


def start(operator: QConv2d) -> Array:
    """Return int64[K]: the bias minus the zero point times all weights, because padding is read like the input."""
    zero_point = quantization(operator.inputs[0]).zero_point
    taps = operator.weight.reshape(operator.weight.shape[0], -1).astype(np.int64)
    return operator.bias.astype(np.int64) - zero_point * taps.sum(axis=1)


def row_numbers(window: Window, source: TensorType, pitch: int) -> int:
    """Return the 16-bit numbers of a row with its padding; pixels lie `pitch` numbers apart."""
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
        title="Quantized convolution, up to 64 channels of an output pixel at a time",
        operator=QConv2d,
        constraints=(for_speed, has_no_groups, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
# With weights of 4 bits the loops unpack two weights from each byte.
QCONV2D_PACKED = CONVOLUTION.kernel(
    Family(
        name="qconv2d_packed_host",
        title="Quantized convolution with weights of 4 bits, up to 64 channels of a pixel at a time",
        operator=PackedQConv2d,
        constraints=(has_no_groups, *QCONV2D_PACKED_CONSTRAINTS, sums_leave_room),
    )
)


# Quantized dense layer on the host, in vectors of 8 accumulators: up to 64 output channels of one vector at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], int32 accumulators modulo 2^32. The vectors are read in
# place, like pixels. Portable C computes layers whose input or output comes in rows. Rounding "onnx" or "tflite".


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


QDENSE = DenseKernel(
    name="qdense_host",
    title="Quantized dense layer, up to 64 output channels of a vector at a time",
    layer=dense_layer,
    has_rows=lambda _: False,
).kernel((for_speed, *qdense.CONSTRAINTS, qdense_sums_leave_room))


# The same dense layer with weights of 4 bits: the loops unpack two weights from each byte.
#
# int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], int32 accumulators modulo 2^32.

QDENSE_PACKED = DenseKernel(
    name="qdense_packed_host",
    title="Quantized dense layer with weights of 4 bits, up to 64 output channels of a vector at a time",
    layer=dense_layer,
).packed((*QDENSE_PACKED_CONSTRAINTS, qdense_sums_leave_room))


KERNELS = (QCONV2D, QCONV2D_PACKED, QDENSE, QDENSE_PACKED)
