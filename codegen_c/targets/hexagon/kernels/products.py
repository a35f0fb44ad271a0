"""Kernels for quantized convolutions and dense layers with HVX, and their requantization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.qdense import DenseKernel, DenseParts
from codegen_c.kernels.shared.common_shift import DOUBLED_BITS, HighWords
from codegen_c.kernels.shared.layer import row_of_vectors, shapes
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel, room_for_sums
from codegen_c.kernels.shared.requantize import quantization, wrapped
from codegen_c.operators.kinds import Array, QConv2d, QDense

# Requantization with HVX, which all kernels of the target share, and the constants it reads.
#
# Two instructions make the product of an accumulator and a multiplier, divided by 2^31 and rounded as TensorFlow Lite
# rounds it, or rounded down. The shift that follows rounds once more; if an accumulator can lie halfway between two
# results with one rounding, a few more instructions round it to even.

HEADERS = (
    "tvm_ext_hvx.h", "tvm_ext_hvx_plain.h", "tvm_ext_hvx_requantize.h", "tvm_ext_kernels.h", "tvm_ext_layer.h",
    "tvm_ext_requantize.h",
)  # fmt: skip
FACTORS = Parameter(name="factors", ctype="int32_t", role="constant")
WORDS, VECTOR_BYTES = 32, 128
"""Accumulators and bytes of a vector."""
MOST_SHIFT = 31
"""Largest shift of a word, beyond the 31 bits by which products are divided."""


def num_groups(channels: int) -> int:
    """Return the number of vectors that hold the accumulators of all channels."""
    return -(-channels // WORDS)


@dataclass(frozen=True, kw_only=True, eq=False)
class WordRescale(HighWords):
    """`Requantize` in vectors of 32 accumulators."""

    @property
    def shifts(self) -> Array:
        """Return the right shifts of the products after their division by 2^31, int64."""
        more = 0 if self.is_twice else 1
        return more - self.factors()[1].astype(np.int64)

    def fits(self, low: Array, high: Array) -> bool:
        """Return True if accumulators from low to high can be requantized, halves that are added included."""
        if not super().fits(low, high):
            return False
        largest = int(np.maximum(np.abs(low), np.abs(high)).max(initial=1)) << self.left_shift
        most = int(self.shifts.max())
        return most <= MOST_SHIFT and largest + half_of(most) < 1 << DOUBLED_BITS

    def table(self, start: Array) -> Array:
        """Return int32[groups, 4, 32]: initial accumulators, multipliers, halves and negative shifts of each channel.

        Lanes after the last channel are 0. start: int64[K], taken modulo 2^32.
        """
        multiplier, shifts = (np.broadcast_to(array, len(start)) for array in (self.factors()[0], self.shifts))
        halves = np.array([half_of(int(shift)) for shift in shifts], np.int64)
        rows = np.zeros((4, num_groups(len(start)) * WORDS), np.int32)
        for row, values in zip(rows, (start, multiplier, halves, -shifts), strict=True):
            row[: len(start)] = wrapped(values)
        return np.ascontiguousarray(rows.reshape(4, -1, WORDS).transpose(1, 0, 2))

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_hvx_rescale`."""
        finish = self.requantize
        members: dict[str, Value] = {"rounds_twice": True} if self.is_twice else {}
        members |= {"has_ties": True} if self.halves_even else {}
        members |= {"left_shift": self.left_shift} if self.left_shift else {}
        members |= {"is_unsigned": True} if finish.output.dtype == "uint8" else {}
        return {**members, "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high}

    @property
    def instructions(self) -> int:
        """Return the modelled packets of a vector of accumulators, of which four are requantized together."""
        return 6 if self.is_twice else 9 if self.halves_even else 5

    @classmethod
    def of_convolution(cls, operator: QConv2d) -> Self:
        return cls.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())

    @classmethod
    def of_dense(cls, operator: QDense) -> Self:
        return cls.of(qdense.requantize(operator), *qdense.products(operator).range())


def half_of(shift: int) -> int:
    """Return what is added before a right shift that rounds to nearest."""
    return 1 << (shift - 1) if shift > 0 else 0


sums_leave_room = room_for_sums(WordRescale.of_convolution, qconv2d.bounds, least_factor="one quarter")


# Products of up to four pixels with all channels: 128 products for each vector instruction of the inner loop, which
# loads the weights of 32 channels once for all pixels.

PIXELS, DEPTH_STEP, WORD_BYTES = 4, 8, 4
CALL_INSTRUCTIONS, SUM_INSTRUCTIONS, WINDOW_INSTRUCTIONS, RUN_INSTRUCTIONS, STORE_INSTRUCTIONS = 34, 9, 20, 3, 7
"""Modelled packets of the products of some pixels, of a vector of accumulators beside its requantization, of a copied
window and each of its rows, and of a store of a part of a vector. The processor starts the instructions of a packet
together, and QEMU counts packets."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ScalarProduct:
    """Products of `pixels` pixels at a time, of `depth` elements each, with `channels` channels."""

    pixels: int
    depth: int
    channels: int
    rescale: WordRescale

    @property
    def padded_depth(self) -> int:
        return -(-self.depth // DEPTH_STEP) * DEPTH_STEP

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_hvx_conv2d_layer` beside its images and its window."""
        return {
            "pixels": self.pixels, "depth": self.padded_depth, "groups": num_groups(self.channels),
            "requantize": self.rescale.members(),
        }  # fmt: skip

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Return the packed weights, uint8[groups, depth / 4, 32, 4] plus 128, and the factors.

        weight: int8[K, ...].
        """
        full = np.zeros((num_groups(self.channels) * WORDS, self.padded_depth), np.int16)
        full[: self.channels, : self.depth] = weight.reshape(self.channels, self.depth)
        groups = full.reshape(-1, WORDS, self.padded_depth // WORD_BYTES, WORD_BYTES).transpose(0, 2, 1, 3)
        return (("weights", (groups + 128).astype(np.uint8)), ("factors", self.rescale.table(start)))

    @property
    def scratch_bytes(self) -> int:
        """Return the bytes of the accumulators, and of copies of the windows."""
        sums = (self.pixels * num_groups(self.channels) + 3) * VECTOR_BYTES
        return sums + self.pixels * self.padded_depth + VECTOR_BYTES

    @property
    def grows(self) -> bool:
        """Return True if packed weights take more bytes than the layer's own."""
        return self.channels % WORDS > 0 or self.padded_depth > self.depth

    @property
    def instructions(self) -> int:
        """Return the modelled packets of `pixels` pixels, from their elements to their results."""
        groups, steps = num_groups(self.channels), self.padded_depth // DEPTH_STEP
        vectors, pairs = groups * self.pixels, -(-groups // 2)
        inner = steps * (2 * pairs + 3 * vectors // 2)
        stores = STORE_INSTRUCTIONS * self.pixels if self.channels % WORDS else 0
        return CALL_INSTRUCTIONS + inner + vectors * (SUM_INSTRUCTIONS + self.rescale.instructions) + stores

    def passes(self, num_pixels: int, num_elements: int) -> Passes:
        """Return the memory traffic of a layer."""
        reads = num_pixels * self.depth * -(-num_groups(self.channels) // 2)
        return Passes(
            constants=max(1.0, num_pixels / self.pixels), input=max(1.0, reads / num_elements),
            scratch=max(1.0, num_pixels / self.pixels),
        )  # fmt: skip


# Quantized convolution with HVX: all channels of four output pixels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], int32 accumulators. Windows of one pixel are
# read in place, other windows from copies in scratch with zero points as padding. The bias contains the correction for
# the zero point. Rounding "onnx" or "tflite".

LAYER = "tvm_ext_hvx_conv2d_layer"
INCLUDES = ("tvm_ext_hvx_conv2d.h", "tvm_ext_hvx_product.h", *HEADERS)
WEIGHTS = Parameter(name="weights", ctype="uint8_t", role="constant")
LOOPS = Loops(function="tvm_ext_hvx_conv2d", layer=LAYER, includes=INCLUDES, is_read_first=True)


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    channels = operator.output.shape[3]
    num_pixels = operator.output.num_elements // channels
    product = ScalarProduct(
        pixels=PIXELS if num_pixels > 1 else 1, depth=operator.weight[0].size, channels=channels,
        rescale=WordRescale.of_convolution(operator),
    )  # fmt: skip
    window = operator.window
    is_one_pixel = window.kernel == (1, 1) and not any(window.padding)
    is_in_place = is_one_pixel and operator.inputs[0].shape[3] % DEPTH_STEP == 0
    copies = 0 if is_in_place else _copy_instructions(operator)
    return Parts(
        parameters=(WEIGHTS, FACTORS),
        constants=product.constants(operator.weight, qconv2d.start_of(operator)),
        members=product.members(),
        scratch_bytes=product.scratch_bytes,
        instructions=-(-num_pixels // product.pixels) * product.instructions + num_pixels * copies,
        passes=product.passes(num_pixels, operator.inputs[0].num_elements),
        grows_weights=product.grows,
    )


def _copy_instructions(operator: QConv2d) -> int:
    """Return the modelled packets of a copied window."""
    rows, columns = operator.window.kernel
    runs = rows * (columns if operator.window.dilation[1] > 1 else 1)
    vectors = -(-operator.weight[0].size // (runs * VECTOR_BYTES))
    return WINDOW_INSTRUCTIONS + runs * (RUN_INSTRUCTIONS + 2 * vectors)


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_hvx",
        title="Quantized convolution, all channels of four output pixels at a time",
        operator=QConv2d,
        constraints=(qconv2d.is_ungrouped, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)


# Quantized dense layer with HVX: all output channels of four vectors at a time, or of a single one.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], int32 accumulators, by the loops of the convolution.
# Rounding "onnx" or "tflite".

qdense_sums_leave_room = room_for_sums(WordRescale.of_dense, qdense.bounds, least_factor="one quarter")


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    source, output, (channels, depth) = operator.inputs[0], operator.output, operator.weight.shape
    vectors = output.num_elements // channels
    product = ScalarProduct(
        pixels=PIXELS if vectors > 1 else 1, depth=depth, channels=channels, rescale=WordRescale.of_dense(operator)
    )
    layer = shapes(LAYER, {
        **row_of_vectors(operator),
        **product.members(),
    })  # fmt: skip
    parts = DenseParts(
        parameters=(WEIGHTS, FACTORS),
        constants=product.constants(operator.weight, qdense.products(operator).start),
        helpers=layer,
        body="tvm_ext_hvx_conv2d(&$_layer, input, output, weights, factors, scratch, 0, 1);",
        includes=INCLUDES,
        scratch_bytes=product.scratch_bytes,
        instructions=-(-vectors // product.pixels) * product.instructions,
        passes=product.passes(vectors, source.num_elements),
        grows_weights=product.grows,
    )
    return lambda _: parts


# The weights of a run of channels are not contiguous, so portable C computes rows of the result and parts of the input.
QDENSE = DenseKernel(
    name="qdense_hvx",
    title="Quantized dense layer, all output channels of four vectors at a time",
    layer=dense_layer,
    has_rows=lambda _: False,
).kernel((*qdense.CONSTRAINTS, qdense_sums_leave_room))


KERNELS = (QCONV2D, QDENSE)
