"""Kernels for quantized convolutions and dense layers on the host, in vectors of 16 accumulators.

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
from codegen_c.kernels.shared.layer import row_of_vectors, shapes
from codegen_c.kernels.shared.product_kernel import (
    Family,
    Loops,
    Parts,
    ProductKernel,
    room_for_sums,
)
from codegen_c.kernels.shared.requantize import INCLUDES as REQUANTIZE_INCLUDES
from codegen_c.kernels.shared.requantize import Requantize, quantization, wrapped
from codegen_c.kernels.shared.winograd import for_speed
from codegen_c.operators.kinds import Array, PackedQConv2d, PackedQDense, QConv2d, QDense, TensorType, Window

# Accumulators in vectors of 16: a unit is 16 channels of one pixel.
#
# Products of 8-bit numbers are exact. Groups of four products are added in 32 bits modulo 2^32, so the order of
# additions does not change a bit. The loops are in tvm_ext_host_conv2d.h.

UNIT = 16
QUAD = 4
"""Elements whose products are added to an accumulator at once."""
SIGN = 128
"""Difference between a signed activation and the unsigned byte that stands for it."""
# The largest number of vectors that a block of a dense layer holds in scratch.
MOST_VECTORS = 8
SUM_INCLUDES = (
    "tvm_ext_host_rescale.h", "tvm_ext_i32x16.h", "tvm_ext_i32x16_avx2.h", "tvm_ext_i32x16_avx512.h",
    "tvm_ext_i32x16_neon.h", "tvm_ext_i32x16_plain.h", "tvm_ext_layer.h",
    *sorted({*REQUANTIZE_INCLUDES, *requantize_tflite.INCLUDES}),
)  # fmt: skip
PRODUCT_INCLUDES = ("tvm_ext_host_conv2d.h", "tvm_ext_host_rows.h", *SUM_INCLUDES)
FACTORS = Parameter(name="factors", ctype="int32_t", role="constant")
# Modelled instructions with AVX2: from the accumulators of a unit to its elements, of four products of each channel of
# a unit, and of loading four weights of each channel.
FINISH_INSTRUCTIONS = {True: 16, False: 32}
"""Key: True if the factors are floats."""
QUAD_INSTRUCTIONS = 10
LOAD_INSTRUCTIONS = 9
LOADED_FOR = 4
"""Pixels for which weights are loaded."""
WEIGHTS_BYTES = {False: 64, True: 32}
"""Bytes of four weights of each channel of a unit. Key: True if weights have 4 bits, False if they have 8."""


def packed_parameters(*, is_packed: bool) -> tuple[Parameter, Parameter]:
    """Return the parameters for weights and factors. is_packed: weights have 4 bits, otherwise 8."""
    return (Parameter(name="weights", ctype="uint8_t" if is_packed else "int8_t", role="constant"), FACTORS)


def in_four_bits(weights: Array) -> Array:
    """Pack int8[..., 16 channels, 4] as uint8[..., 32], the first eight channels in the lower four bits."""
    low, high = np.moveaxis(weights.reshape(-1, 2, UNIT * QUAD // 2), 1, 0)
    return pack_pairs(low, high)


@dataclass(frozen=True, kw_only=True, eq=False)
class LaneRescale(HighWords):
    """`Requantize` in vectors of 16 accumulators; every shift of a high word is above 0.

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

    def table(self, start: Array, signed_start: Array | None = None, fold: int = 1) -> Array:
        """Return the table of factors by unit, int32[units, 7 or 8, 16].

        Rows: initial accumulators for activations without a sign, and with a sign; multipliers, halves, shifts, and the
        bits of float factors, of offsets, and of offsets of negative accumulators if these differ. Lanes after the last
        channel are 0, and their shifts 1. start, signed_start: int64[K], taken modulo 2^32; by default both are equal.
        fold: times that the numbers of all channels are repeated.
        """
        multiplier, negative = self.factors()
        shift = -negative.astype(np.int64)
        length = len(start) * fold
        none = np.zeros(1, np.float32)
        floats = self.floats
        bits = (none, none) if floats is None else (floats.factors, floats.offsets)
        bits = (*bits, floats.negative_offsets) if floats is not None and floats.has_signs else bits
        sums = (wrapped(start), wrapped(start if signed_start is None else signed_start))
        numbers = (*sums, multiplier, 1 << (shift - 1), shift, *(values.view(np.int32) for values in bits))
        rows = np.zeros((len(numbers), -(-length // UNIT) * UNIT), dtype=np.int32)
        rows[3:5] = 1
        for row, values in zip(rows, numbers, strict=True):
            row[:length] = np.tile(np.broadcast_to(values, start.shape), fold)
        return np.ascontiguousarray(rows.reshape(len(numbers), -1, UNIT).transpose(1, 0, 2))

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
        members |= {"has_signs": True} if self.floats is not None and self.floats.has_signs else {}
        members |= {"is_unsigned": True} if finish.output.dtype == "uint8" else {}
        members |= {"left_shift": self.left_shift} if self.left_shift else {}
        return {**members, "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high}


def starts(start: Array, weight: Array, source: TensorType) -> tuple[Array, Array]:
    """Return the initial sums for products of activations without a sign, and with a sign, int64[K] each.

    start: initial sums for the activations in their own type. weight: int8[K, ...].
    """
    moved = SIGN * weight.reshape(weight.shape[0], -1).astype(np.int64).sum(axis=1)
    return (start, start + moved) if source.dtype == "uint8" else (start - moved, start)


def is_symmetric(weight: Array) -> bool:
    """Return True if no weight is -128, so that the sign of every weight can change within 8 bits."""
    return bool((weight > -SIGN).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class QuadProduct:
    """Products of `runs` runs of `length` elements each with the weights of all channels, four elements at a time.

    is_packed: weights have 4 bits, otherwise 8.
    """

    runs: int
    length: int
    channels: int
    rescale: LaneRescale
    is_packed: bool

    def pack(self, weight: Array) -> Array:
        """Pack int8[K, ...] as int8 or 4 bits: [units][runs][groups of four elements][16 channels][4]."""
        flat = weight.reshape(self.channels, self.runs, self.length)
        quads, units = -(-self.length // QUAD), -(-self.channels // UNIT)
        full = np.zeros((units * UNIT, self.runs, quads * QUAD), dtype=np.int8)
        full[: self.channels, :, : self.length] = flat
        packed = full.reshape(units, UNIT, self.runs, quads, QUAD).transpose(0, 2, 3, 1, 4).ravel()
        return in_four_bits(packed) if self.is_packed else packed

    def constants(self, weight: Array, start: Array, source: TensorType) -> tuple[tuple[str, Array], ...]:
        """Return the packed weights, and the table of initial accumulators and factors."""
        return (("weights", self.pack(weight)), ("factors", self.rescale.table(*starts(start, weight, source))))

    def instructions(self, pixels: int) -> int:
        """Return the modelled instructions of so many pixels of a row."""
        units, quads = -(-self.channels // UNIT), self.runs * -(-self.length // QUAD)
        loads = -(-pixels // LOADED_FOR) * units * quads * LOAD_INSTRUCTIONS
        return pixels * units * (quads * QUAD_INSTRUCTIONS + self.rescale.finish_instructions) + loads


# Quantized convolution on the host, in vectors of 16 accumulators: blocks of adjacent pixels by units of 16 channels.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], int32 accumulators modulo 2^32. The rows
# that windows read are copied to scratch, with the zero point as padding, in the sign that the processor's products
# take. Rounding "onnx" or "tflite".

LAYER = "tvm_ext_host_conv2d_layer"
LOOPS = Loops(
    function="tvm_ext_host_conv2d", layer=LAYER, includes=PRODUCT_INCLUDES,
    accumulation="products with r, s, c ascending in fours, modulo 2^32",
)  # fmt: skip
READ_AT_ONCE = 64
"""Bytes after the last copied row that may be read."""


def rescale(operator: QConv2d) -> LaneRescale:
    return LaneRescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


sums_leave_room = room_for_sums(rescale, qconv2d.bounds, least_factor="one half")


def row_numbers(window: Window, source: TensorType, pitch: int) -> int:
    """Return the elements of a row with its padding; pixels lie `pitch` elements apart."""
    return (window.padding[1] + source.shape[2] + window.padding[3]) * pitch


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output, window = operator.inputs[0], operator.output, operator.window
    depth, channels = source.shape[3], output.shape[3]
    runs = 1 if window.dilation[1] == 1 else window.kernel[1]
    product = QuadProduct(
        runs=window.kernel[0] * runs, length=window.kernel[1] // runs * depth, channels=channels,
        rescale=rescale(operator), is_packed=isinstance(operator, PackedQConv2d),
    )  # fmt: skip
    rows, columns = output.shape[0] * output.shape[1], output.shape[2]
    copied = window.kernel[0] * row_numbers(window, source, depth)
    return Parts(
        parameters=packed_parameters(is_packed=product.is_packed),
        constants=product.constants(operator.weight, qconv2d.start_of(operator), source),
        members=product_members(product, operator.weight, runs),
        scratch_bytes=copied + READ_AT_ONCE,
        instructions=rows * (product.instructions(columns) + copied * 3 // UNIT),
        passes=Passes.of_product(
            output.num_elements * operator.weight[0].size, source.num_elements, rows * columns, pixels=LOADED_FOR,
            channels=UNIT,
        ),
        grows_weights=not product.is_packed,
    )  # fmt: skip


def product_members(product: QuadProduct, weight: Array, runs: int) -> dict[str, Value]:
    """Return the members of a `tvm_ext_host_conv2d_layer` beside its images and its window. runs: of a row."""
    return {
        "runs": runs, "length": product.length, "is_packed": product.is_packed, "is_symmetric": is_symmetric(weight),
        "rescale": product.rescale.members(),
    }  # fmt: skip


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_host",
        title="Quantized convolution, blocks of adjacent pixels by 16 channels at a time",
        operator=QConv2d,
        constraints=(for_speed, qconv2d.is_ungrouped, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
# With weights of 4 bits the loops unpack two weights from each byte.
QCONV2D_PACKED = CONVOLUTION.kernel(
    Family(
        name="qconv2d_packed_host",
        title="Quantized convolution with weights of 4 bits, blocks of pixels by 16 channels at a time",
        operator=PackedQConv2d,
        constraints=(qconv2d.is_ungrouped, *QCONV2D_PACKED_CONSTRAINTS, sums_leave_room),
    )
)


# Quantized dense layer on the host, in vectors of 16 accumulators: blocks of vectors by units of 16 channels.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], int32 accumulators modulo 2^32. The vectors of a block are
# copied to scratch, like pixels of a convolution. Portable C computes layers whose input or output comes in rows.
# Rounding "onnx" or "tflite".


def _rescale(operator: QDense) -> LaneRescale:
    return LaneRescale.of(qdense.requantize(operator), *qdense.products(operator).range())


qdense_sums_leave_room = room_for_sums(_rescale, qdense.bounds, least_factor="one half")


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    source, output, (channels, depth) = operator.inputs[0], operator.output, operator.weight.shape
    vectors = output.num_elements // channels
    product = QuadProduct(
        runs=1, length=depth, channels=channels, rescale=_rescale(operator),
        is_packed=isinstance(operator, PackedQDense),
    )  # fmt: skip
    layer = shapes(LAYER, {
        **row_of_vectors(operator),
        **product_members(product, operator.weight, 1),
    })  # fmt: skip
    parts = DenseParts(
        parameters=packed_parameters(is_packed=product.is_packed),
        constants=product.constants(operator.weight, qdense.products(operator).start, source),
        body="tvm_ext_host_vectors(&$_layer, input, output, weights, factors, scratch);",
        helpers=layer,
        includes=PRODUCT_INCLUDES,
        instructions=product.instructions(vectors),
        scratch_bytes=min(vectors, MOST_VECTORS) * depth + READ_AT_ONCE,
        passes=Passes.of_product(
            output.num_elements * depth, source.num_elements, vectors, pixels=LOADED_FOR, channels=UNIT
        ),
        accumulation="products with c ascending in fours, modulo 2^32",
        grows_weights=not product.is_packed,
    )
    return lambda _: parts


QDENSE = DenseKernel(
    name="qdense_host",
    title="Quantized dense layer, blocks of vectors by 16 channels at a time",
    layer=dense_layer,
    has_rows=lambda _: False,
).kernel((for_speed, *qdense.CONSTRAINTS, qdense_sums_leave_room))


# A dense layer with weights of 4 bits: the loops unpack two weights from each byte.
#
# int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], int32 accumulators modulo 2^32.

QDENSE_PACKED = DenseKernel(
    name="qdense_packed_host",
    title="Quantized dense layer with weights of 4 bits, blocks of vectors by 16 channels at a time",
    layer=dense_layer,
).packed((*QDENSE_PACKED_CONSTRAINTS, qdense_sums_leave_room))


KERNELS = (QCONV2D, QCONV2D_PACKED, QDENSE, QDENSE_PACKED)
