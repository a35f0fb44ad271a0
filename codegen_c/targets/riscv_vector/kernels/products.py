"""Kernels for quantized convolutions and dense layers with RISC-V's vectors, and their requantization."""

from __future__ import annotations

from collections.abc import Callable
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
from codegen_c.kernels.shared.requantize import Products, quantization
from codegen_c.operators.kinds import Array, QConv2d, QDense

# Requantization with RISC-V's vectors, which all kernels of the target share, and the constants it reads.
#
# The accumulators of a pixel are stored, then requantized one group of registers at a time by high words of products
# (common_shift.py). If an accumulator can lie halfway between two results, a few more instructions round it to even.

HEADERS = (
    "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h", "tvm_ext_rvv.h",
    "tvm_ext_rvv_requantize.h",
)  # fmt: skip
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

    def constants(self, weights: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Return the weights unchanged, and int32[3, K] of initial accumulators, multipliers and shifts.

        start: int64[K], taken modulo 2^32.
        """
        multiplier, shift = (np.broadcast_to(array, len(start)) for array in self.factors())
        wrapped = (start & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        return (("weights", np.ascontiguousarray(weights)), ("factors", np.stack([wrapped, multiplier, -shift])))

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


def start_of(operator: QConv2d) -> Array:
    """Return the initial accumulators of x * w, int64[K]: the bias minus the zero point times the weights.

    Padding counts as elements that equal the zero point.
    """
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=False).start


# Quantized convolution with RISC-V's vectors: groups of channels of three or six output pixels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], int32 accumulators. Windows of one pixel are
# read in place, other windows from copies in scratch with zero points as padding. The bias contains the correction for
# the zero point. Rounding "onnx" or "tflite".

LOOPS = Loops(
    function="tvm_ext_rvv_conv2d", layer="tvm_ext_rvv_conv2d_layer",
    includes=("tvm_ext_rvv_conv2d.h", "tvm_ext_rvv_product.h", *HEADERS),
    is_read_first=True,
)  # fmt: skip
REGISTERS = {1: 8, 3: 8, 6: 4}
"""Registers of the accumulators of each pixel, by the number of pixels at a time."""
PIXEL_INSTRUCTIONS, COPY_INSTRUCTIONS, ROW_INSTRUCTIONS, CALL_INSTRUCTIONS = 24, 40, 20, 40
"""Modelled instructions of a pixel, of the copy of its window, of each row of the copy, and of a group of channels."""


def is_ungrouped(operator: QConv2d, target: Target) -> bool:
    """the convolution must have one group"""
    return operator.groups == 1


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    finish, pixels, depth = GroupedRescale.of_convolution(operator), pixels_at_once(operator), operator.weight[0].size
    num_pixels, channels = operator.output.num_elements // operator.output.shape[3], operator.output.shape[3]
    copies = not is_in_place(operator)
    return Parts(
        parameters=PARAMETERS,
        constants=finish.constants(operator.weight.reshape(channels, depth).T, start_of(operator)),
        members={"pixels": pixels, "requantize": finish.members()},
        scratch_bytes=pixels * (SUM_BYTES * channels + (depth if copies else 0)),
        instructions=-(-num_pixels // pixels) * product_instructions(depth, channels, pixels)
        + num_pixels * (PIXEL_INSTRUCTIONS + finish.instructions(channels) + (_copy(operator) if copies else 0)),
        passes=Passes(
            constants=max(1.0, num_pixels / pixels),
            input=max(1.0, num_pixels * depth / operator.inputs[0].num_elements),
            scratch=num_pixels / pixels * (1 + num_groups(channels, REGISTERS[pixels])),
        ),
    )


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
        title="Quantized convolution, groups of channels of three or six output pixels at a time",
        operator=QConv2d,
        constraints=(is_ungrouped, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)


# Quantized dense layer with RISC-V's vectors: groups of output channels of one or three rows at a time.
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
    at_once = ROWS_AT_ONCE if rows >= ROWS_AT_ONCE else 1
    layer = structure("tvm_ext_rvv_dense_layer", "layer", {
        "rows": rows, "depth": depth, "channels": channels, "has_unsigned_input": source.dtype == "uint8",
        "at_once": at_once, "requantize": finish.members(),
    })  # fmt: skip
    calls = -(-rows // at_once)
    parts = DenseParts(
        parameters=PARAMETERS,
        constants=finish.constants(operator.weight.T, qdense.products(operator).start),
        body="\n".join([*layer, "tvm_ext_rvv_dense(&layer, input, output, weights, factors, scratch);"]),
        includes=("tvm_ext_rvv_dense.h", "tvm_ext_rvv_product.h", *HEADERS),
        scratch_bytes=at_once * SUM_BYTES * channels,
        instructions=calls * product_instructions(depth, channels, at_once)
        + calls * at_once * (QDENSE_ROW_INSTRUCTIONS + finish.instructions(channels)),
        passes=Passes(constants=max(1.0, calls), input=1.0),
    )
    return lambda _: parts


# The weights of a run of channels are not contiguous, so portable C computes rows of the result and parts of the input.
QDENSE = DenseKernel(
    name="qdense_rvv",
    title="Quantized dense layer, groups of output channels of one or three rows at a time",
    layer=dense_layer,
    has_rows=lambda _: False,
).kernel((*qdense.CONSTRAINTS, qdense_sums_leave_room))


KERNELS = (QCONV2D, QDENSE)
