"""Kernels for quantized convolutions and dense layers with RISC-V's vectors, and their requantization."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value, structure
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.dense.qdense import DenseKernel, DenseParts
from codegen_c.kernels.shared.common_shift import HighWords
from codegen_c.kernels.shared.product_kernel import (
    Family,
    Loops,
    Parts,
    ProductKernel,
    room_for_sums,
)
from codegen_c.kernels.shared.requantize import quantization, wrapped
from codegen_c.operators.kinds import Array, QConv2d, QDense

# Requantization with RISC-V's vectors, which all kernels of the target share, and the constants it reads.
#
# The accumulators of a pixel are stored, then requantized one group of registers at a time by high words of products
# (common_shift.py). If an accumulator can lie halfway between two results, a few more instructions round it to even.

HEADERS = (
    "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h", "tvm_ext_rvv.h",
    "tvm_ext_rvv_requantize.h",
)  # fmt: skip
PRODUCT_HEADERS = ("tvm_ext_rvv_product.h", "tvm_ext_rvv_pairs.h")
PARAMETERS = (
    Parameter(name="weights", ctype="int8_t", role="constant"),
    Parameter(name="factors", ctype="int32_t", role="constant"),
)
SUM_BYTES = 4
REGISTER_BYTES = 16
"""Bytes of a vector register in the cost model: the smallest length that the extension allows."""


def num_groups(channels: int, registers: int) -> int:
    """Return the number of groups of `registers` registers that hold the accumulators of all channels."""
    return -(-channels * SUM_BYTES // (registers * REGISTER_BYTES))


class GroupedRescale(HighWords):
    """`Requantize` in groups of vector registers."""

    @classmethod
    def of_convolution(cls, operator: QConv2d) -> Self:
        return cls.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())

    def constants(self, weights: Array, start: Array, *, repeats: int = 1) -> tuple[tuple[str, Array], ...]:
        """Return the weights unchanged, and int32[3, K] of initial accumulators, multipliers and shifts.

        start: int64[K], taken modulo 2^32. repeats: how often the channels' numbers follow each other in K.
        """
        num_channels = len(start) // repeats
        multiplier, shift = (np.tile(np.broadcast_to(array, num_channels), repeats) for array in self.factors())
        return (("weights", np.ascontiguousarray(weights)), ("factors", np.stack([wrapped(start), multiplier, -shift])))

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_rvv_rescale`."""
        finish = self.requantize
        return {
            "rounds_twice": self.is_twice, "has_ties": self.halves_even, "left_shift": self.left_shift,
            "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high,
        }  # fmt: skip

    def instructions(self, channels: int) -> int:
        """Return the modelled instructions of the accumulators of one pixel."""
        if self.halves_even:
            return 20 + 32 * num_groups(channels, 4)
        return 20 + (25 if self.is_twice else 22) * num_groups(channels, 8)


sums_leave_room = room_for_sums(GroupedRescale.of_convolution, qconv2d.bounds, least_factor="one quarter")


# Products of int8 elements and weights, two taps at a time.
#
# Two products are added in 16 bits and then to accumulators of 32 bits, if the weights of every two taps allow it; the
# multiplier then works on elements of 8 bits and half as many registers. A word holds four elements of a pixel.
# Accumulators stay in registers until their results are stored, so that multipliers and shifts are loaded once for all
# pixels.

MOST_OF_A_PAIR = 255
"""Largest sum of the absolute values of two weights: 128 times as much still fits into 16 bits."""
WORD_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class PairForm:
    """Pixels that are computed together, and bytes of a group of weights."""

    pixels: int
    weight_bytes: int

    def instructions(self, depth: int, channels: int, *, is_twice: bool) -> int:
        """Return the modelled instructions of the results of all channels of the pixels."""
        fours, rest = divmod(depth, WORD_BYTES)
        finish = 20 + (14 if is_twice else 11) * self.pixels
        each = CALL_INSTRUCTIONS + 3 * self.pixels + fours * (14 + 11 * self.pixels) + rest * (6 + 4 * self.pixels)
        return self.num_groups(channels) * (each + finish)

    def registers(self, depth: int, channels: int) -> int:
        """Return the registers of the widest operands of the vector instructions of the products."""
        bytes_, halves, words = (max(1, self.weight_bytes * width // REGISTER_BYTES) for width in (1, 2, 4))
        return self.num_groups(channels) * depth * (bytes_ + self.pixels * (halves + words // 2))

    def num_groups(self, channels: int) -> int:
        return -(-channels // self.weight_bytes)


ONE = PairForm(pixels=1, weight_bytes=32)
SEVERAL = (PairForm(pixels=2, weight_bytes=32), PairForm(pixels=5, weight_bytes=16), PairForm(pixels=6, weight_bytes=8))


def best_form(depth: int, channels: int, *, is_twice: bool, most: int) -> PairForm:
    """Return the form with at most so many pixels that takes the fewest instructions and registers for each pixel."""

    def cost(form: PairForm) -> float:
        spent = form.instructions(depth, channels, is_twice=is_twice) + form.registers(depth, channels)
        return spent / form.pixels

    return min((form for form in (ONE, *SEVERAL) if form.pixels <= most), key=cost)


def pairs_fit(weights: Array, dtype: str, rescale: GroupedRescale) -> bool:
    """Return True if taps of weights[taps, K] may be multiplied in pairs, and results need no rounding to even."""
    largest = np.abs(weights.astype(np.int64))
    even, odd = largest[: len(largest) // 2 * 2 : 2], largest[1::2]
    return dtype == "int8" and not rescale.halves_even and int((even + odd).max(initial=0)) <= MOST_OF_A_PAIR


# Quantized convolution with RISC-V's vectors: groups of channels of a few output pixels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], int32 accumulators. Windows of one pixel are
# read in place, other windows from copies in scratch with zero points as padding. The bias contains the correction for
# the zero point. Rounding "onnx" or "tflite".

LOOPS = Loops(
    function="tvm_ext_rvv_conv2d", layer="tvm_ext_rvv_conv2d_layer",
    includes=("tvm_ext_rvv_conv2d.h", *PRODUCT_HEADERS, *HEADERS),
    is_read_first=True,
)  # fmt: skip
REGISTERS = {1: 8, 3: 8, 6: 4}
"""Registers of the accumulators of each pixel, by the number of pixels at a time."""
PIXEL_INSTRUCTIONS, COPY_INSTRUCTIONS, ROW_INSTRUCTIONS, CALL_INSTRUCTIONS = 24, 40, 20, 40
"""Modelled instructions of a pixel, of the copy of its window, of each row of the copy, and of a group of channels."""


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    finish, depth, channels = (
        GroupedRescale.of_convolution(operator), operator.weight[0].size, operator.output.shape[3],
    )  # fmt: skip
    weights = operator.weight.reshape(channels, depth).T
    copies = not is_in_place(operator)
    if pairs_fit(weights, operator.inputs[0].dtype, finish) and (copies or depth % WORD_BYTES == 0):
        return _parts_in_pairs(operator, finish, weights, copies=copies)
    pixels = pixels_at_once(operator)
    num_pixels = operator.output.num_elements // channels
    return Parts(
        parameters=PARAMETERS,
        constants=finish.constants(weights, qconv2d.start_of(operator)),
        members={"pixels": pixels, "has_pairs": False, "is_staged": False, "requantize": finish.members()},
        scratch_bytes=pixels * (SUM_BYTES * channels + (depth if copies else 0)),
        instructions=-(-num_pixels // pixels) * product_instructions(depth, channels, pixels)
        + num_pixels * (PIXEL_INSTRUCTIONS + finish.instructions(channels) + (_copy(operator) if copies else 0)),
        passes=Passes(
            constants=max(1.0, num_pixels / pixels),
            input=max(1.0, num_pixels * depth / operator.inputs[0].num_elements),
            scratch=num_pixels / pixels * (1 + num_groups(channels, REGISTERS[pixels])),
        ),
    )


def _parts_in_pairs(operator: QConv2d, finish: GroupedRescale, weights: Array, *, copies: bool) -> Parts:
    (depth, channels), num_elements = weights.shape, operator.output.num_elements
    form = best_form(depth, channels, is_twice=finish.is_twice, most=MOST_PIXELS)
    pixels, num_pixels = form.pixels, num_elements // channels
    # Vectors may be longer than the smallest ones, but never shorter: channels of one group are read first.
    is_staged = not copies and form.num_groups(channels) > 1
    row_bytes = -(-depth // WORD_BYTES) * WORD_BYTES if copies else channels if is_staged else 0
    moved = _copy(operator) if copies else ROW_INSTRUCTIONS if is_staged else 0
    calls = -(-num_pixels // pixels)
    return Parts(
        parameters=PARAMETERS,
        constants=finish.constants(weights, qconv2d.start_of(operator)),
        members={"pixels": pixels, "has_pairs": True, "is_staged": is_staged, "requantize": finish.members()},
        scratch_bytes=SUM_BYTES * channels + pixels * row_bytes,
        instructions=calls * form.instructions(depth, channels, is_twice=finish.is_twice)
        + num_pixels * (PAIR_PIXEL_INSTRUCTIONS + moved),
        passes=Passes(
            constants=max(1.0, calls),
            input=max(1.0, num_pixels * depth * form.num_groups(channels) / operator.inputs[0].num_elements),
            scratch=2.0 * num_pixels if row_bytes else 0.0,
        ),
    )


MOST_PIXELS = 6
PAIR_PIXEL_INSTRUCTIONS = 20


def is_in_place(operator: QConv2d) -> bool:
    """Return True if windows are single pixels of the image."""
    return operator.window.kernel == (1, 1) and not any(operator.window.padding)


def pixels_at_once(operator: QConv2d) -> int:
    """Return the number of pixels at a time that takes fewer instructions."""
    depth, channels = operator.weight[0].size, operator.output.shape[3]
    return min((3, 6), key=lambda pixels: product_instructions(depth, channels, pixels) / pixels)


def product_instructions(depth: int, channels: int, pixels: int) -> int:
    """Return the modelled instructions of the accumulators of some pixels."""
    fours, rest = divmod(depth, 4)
    tap = 3 + 2 * pixels
    each = CALL_INSTRUCTIONS + 4 * pixels + depth * tap + (fours + rest) * (pixels + 2)
    return num_groups(channels, REGISTERS[pixels]) * each


def _copy(operator: QConv2d) -> int:
    """Return the modelled instructions of a copied window."""
    rows, columns = operator.window.kernel
    runs = rows * (columns if operator.window.dilation[1] > 1 else 1)
    return COPY_INSTRUCTIONS + runs * ROW_INSTRUCTIONS


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_rvv",
        title="Quantized convolution, groups of channels of a few output pixels at a time",
        operator=QConv2d,
        constraints=(qconv2d.is_ungrouped, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)


# Quantized dense layer with RISC-V's vectors: groups of output channels of a few rows at a time.
#
# int8 or uint8[..., C], int8[K, C] -> int8 or uint8[..., K], int32 accumulators. The bias contains the correction for
# the zero point. Rounding "onnx" or "tflite".

ROWS_AT_ONCE = 3
QDENSE_ROW_INSTRUCTIONS = 20
"""Modelled instructions of a row, besides its products and results."""


def _rescale(operator: QDense) -> GroupedRescale:
    return GroupedRescale.of(qdense.requantize(operator), *qdense.products(operator).range())


qdense_sums_leave_room = room_for_sums(_rescale, qdense.bounds, least_factor="one quarter")


def dense_layer(operator: QDense, target: Target) -> Callable[[QDense], DenseParts]:
    source, (channels, depth) = operator.inputs[0], operator.weight.shape
    rows, finish = operator.output.num_elements // channels, _rescale(operator)
    in_pairs = pairs_fit(operator.weight.T, source.dtype, finish) and (rows == 1 or depth % WORD_BYTES == 0)
    form = best_form(depth, channels, is_twice=finish.is_twice, most=min(rows, MOST_PIXELS))
    at_once = form.pixels if in_pairs else ROWS_AT_ONCE if rows >= ROWS_AT_ONCE else 1
    layer = structure("tvm_ext_rvv_dense_layer", "layer", {
        "rows": rows, "depth": depth, "channels": channels, "has_unsigned_input": source.dtype == "uint8",
        "at_once": at_once, "has_pairs": in_pairs, "requantize": finish.members(),
    })  # fmt: skip
    calls = -(-rows // at_once)
    if in_pairs:
        instructions = calls * form.instructions(depth, channels, is_twice=finish.is_twice)
        instructions += rows * QDENSE_ROW_INSTRUCTIONS
    else:
        instructions = calls * product_instructions(depth, channels, at_once)
        instructions += calls * at_once * (QDENSE_ROW_INSTRUCTIONS + finish.instructions(channels))
    parts = DenseParts(
        parameters=PARAMETERS,
        constants=finish.constants(operator.weight.T, qdense.products(operator).start),
        body="\n".join([*layer, "tvm_ext_rvv_dense(&layer, input, output, weights, factors, scratch);"]),
        includes=("tvm_ext_rvv_dense.h", *PRODUCT_HEADERS, *HEADERS),
        scratch_bytes=(1 if in_pairs else at_once) * SUM_BYTES * channels,
        instructions=instructions,
        passes=Passes(constants=max(1.0, calls), input=1.0),
    )
    return lambda _: parts


# The weights of a run of channels are not contiguous, so portable C computes rows of the result and parts of the input.
QDENSE = DenseKernel(
    name="qdense_rvv",
    title="Quantized dense layer, groups of output channels of a few rows at a time",
    layer=dense_layer,
    has_rows=lambda _: False,
).kernel((*qdense.CONSTRAINTS, qdense_sums_leave_room))


KERNELS = (QCONV2D, QDENSE)
