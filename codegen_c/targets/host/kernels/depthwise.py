"""Kernels for quantized depthwise conv2d in vectors of 16 sums, with weights of 8 or 4 bits."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qconv2d import QCONV2D_PACKED_CONSTRAINTS
from codegen_c.kernels.convolution.qdepthwise import is_depthwise
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.winograd import for_speed
from codegen_c.operators.kinds import Array, PackedQConv2d, QConv2d
from codegen_c.targets.host.kernels.products import (
    QUAD,
    READ_AT_ONCE,
    SUM_INCLUDES,
    UNIT,
    in_four_bits,
    is_symmetric,
    packed_parameters,
    rescale,
    row_numbers,
    starts,
    sums_leave_room,
)

# Quantized depthwise conv2d in vectors of 16 sums: 16 channels of some output pixels, four rows of a window at once.
#
# int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32, modulo 2^32. Rows that
# windows read are copied to scratch, with the zero point as padding, and interleaved in groups of four. Either
# rounding. If a pixel has 1, 2, 4 or 8 channels, a vector holds all channels of several pixels.

MOST_TAPS = 49
TAP_INSTRUCTIONS = 11
"""Modelled instructions with AVX2 of four rows of a tap of a unit, and of interleaving four rows of 16 elements."""
WEAVE_INSTRUCTIONS = 10
ROW_INSTRUCTIONS = 20
"""Instructions of a copied row, beside its bytes."""
LOOPS = Loops(
    function="tvm_ext_host_depthwise", layer="tvm_ext_host_depthwise_layer",
    includes=("tvm_ext_host_depthwise.h", "tvm_ext_host_rows.h", *SUM_INCLUDES),
    accumulation="products in groups of four rows, modulo 2^32",
)  # fmt: skip


def few_taps(operator: QConv2d, target: Target) -> bool:
    """the window must have at most 49 taps, because the code of each tap is unrolled"""
    return operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output, finish = operator.inputs[0], operator.output, rescale(operator)
    window, is_packed, fold = operator.window, isinstance(operator, PackedQConv2d), _fold(operator)
    weights = _pack(operator.weight, fold)
    vectors = output.shape[0] * output.shape[1] * -(-output.shape[2] // fold) * weights.shape[0]
    length, groups = row_numbers(window, source, source.shape[3]), weights.shape[1]
    woven = groups * QUAD * -(-length // READ_AT_ONCE) * READ_AT_ONCE
    taps = weights.shape[2] * groups * TAP_INSTRUCTIONS
    copies = window.kernel[0] * (ROW_INSTRUCTIONS + length // UNIT) + woven // (QUAD * UNIT) * WEAVE_INSTRUCTIONS
    table = finish.table(*starts(qconv2d.start_of(operator), operator.weight, source), fold)
    return Parts(
        parameters=packed_parameters(is_packed=is_packed),
        constants=(
            ("weights", in_four_bits(weights) if is_packed else weights), ("factors", table),
        ),
        members={
            "fold": fold, "is_packed": is_packed, "is_symmetric": is_symmetric(weights), "rescale": finish.members(),
        },
        scratch_bytes=window.kernel[0] * length + woven + 2 * READ_AT_ONCE,
        instructions=vectors * (taps + finish.finish_instructions) + output.shape[0] * output.shape[1] * copies,
        passes=Passes(
            constants=max(1.0, output.num_elements // output.shape[3] / fold), input=max(1.0, window.kernel[0]),
            scratch=max(1.0, output.num_elements * operator.weight[0].size / (window.kernel[0] * length)),
        ),
        grows_weights=not is_packed,
    )  # fmt: skip


def _fold(operator: QConv2d) -> int:
    """Return the adjacent pixels whose channels fill a vector of outputs: one for strides, or if none fit exactly."""
    channels = operator.output.shape[3]
    return UNIT // channels if operator.window.strides[1] == 1 and UNIT % channels == 0 else 1


def _pack(weight: Array, fold: int) -> Array:
    """Pack int8[C, R, S, 1] as int8[units, groups of four rows, S, 16 channels, 4], `fold` times side by side."""
    channels, rows, columns, _ = weight.shape
    full = np.zeros((-(-channels * fold // UNIT) * UNIT, -(-rows // QUAD) * QUAD, columns), np.int8)
    full[: channels * fold, :rows] = np.tile(weight[..., 0], (fold, 1, 1))
    quads = full.reshape(-1, UNIT, full.shape[1] // QUAD, QUAD, columns)
    return np.ascontiguousarray(quads.transpose(0, 2, 4, 1, 3))


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
QDEPTHWISE = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_host",
        title="Quantized depthwise convolution, 16 channels of an output pixel at a time",
        operator=QConv2d,
        constraints=(for_speed, is_depthwise, few_taps, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
# Weights of 4 bits: the code of each pair of taps unpacks bytes.
QDEPTHWISE_PACKED = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_packed_host",
        title="Quantized depthwise convolution with weights of 4 bits, 16 channels of a pixel at a time",
        operator=PackedQConv2d,
        constraints=(is_depthwise, few_taps, *QCONV2D_PACKED_CONSTRAINTS, sums_leave_room),
    )
)


KERNELS = (QDEPTHWISE, QDEPTHWISE_PACKED)
