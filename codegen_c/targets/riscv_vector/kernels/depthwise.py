"""Kernel for quantized depthwise conv2d with RISC-V's vectors: groups of channels of one output pixel or of
adjacent pixels.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. Taps outside the image read a
pixel of zero points in scratch, so that the bias can subtract the zero point. Either rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.riscv_vector.kernels.products import (
    HEADERS,
    PARAMETERS,
    PRODUCT_HEADERS,
    REGISTER_BYTES,
    SUM_BYTES,
    GroupedRescale,
    num_groups,
    pairs_fit,
    sums_leave_room,
)

LOOPS = Loops(
    function="tvm_ext_rvv_depthwise", layer="tvm_ext_rvv_depthwise_layer",
    includes=("tvm_ext_rvv_depthwise.h", "tvm_ext_taps.h", *PRODUCT_HEADERS, *HEADERS),
)  # fmt: skip
MOST_TAPS = 49
GROUP = 8
"""Registers of the sums of a group of channels."""
PAIR_GROUP_INSTRUCTIONS = 65
"""Modelled instructions of a group of results, besides its taps, if taps are multiplied in pairs."""
PIXEL_INSTRUCTIONS, PLACE_INSTRUCTIONS, GROUP_INSTRUCTIONS, TAP_INSTRUCTIONS = 36, 9, 12, 10
"""Modelled instructions of a pixel, of the address of one of its taps, of a group of channels, of one of its taps."""


def has_few_taps(operator: QConv2d, target: Target) -> bool:
    """windows must have at most 49 taps"""
    return operator.weight[0].size <= MOST_TAPS


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output, window = operator.inputs[0], operator.output, operator.window
    finish, channels, num_taps = GroupedRescale.of_convolution(operator), output.shape[3], operator.weight[0].size
    num_pixels = output.num_elements // channels
    inside = inner_columns(window, source.shape[2], output.shape[2])
    in_pairs = pairs_fit(qdepthwise.pack(operator.weight).reshape(num_taps, channels), source.dtype, finish)
    repeats = _repeats(operator, inside) if in_pairs and not target.least_flash else 1
    is_short = channels * repeats <= REGISTER_BYTES
    if in_pairs:
        num_calls = num_pixels / repeats
        groups = -(-channels * repeats // (REGISTER_BYTES if is_short else 2 * REGISTER_BYTES))
        pixel = PIXEL_INSTRUCTIONS + groups * (PAIR_GROUP_INSTRUCTIONS + 8 * num_taps)
    else:
        num_calls = num_pixels
        group = GROUP_INSTRUCTIONS + TAP_INSTRUCTIONS * num_taps
        pixel = PIXEL_INSTRUCTIONS + num_groups(channels, GROUP) * group + finish.instructions(channels)
    return Parts(
        parameters=PARAMETERS,
        constants=finish.constants(
            np.tile(qdepthwise.pack(operator.weight).reshape(num_taps, channels), repeats),
            np.tile(qconv2d.start_of(operator), repeats), repeats=repeats,
        ),
        members={
            "inside_begin": inside[0], "inside_end": inside[1], "has_pairs": in_pairs, "is_short": is_short,
            "repeats": repeats, "requantize": finish.members(),
        },
        leading=("taps",),
        statements=(f"const uint8_t *taps[{num_taps}]; /* of a window */",),
        scratch_bytes=channels * ((0 if in_pairs else SUM_BYTES) + (1 if any(window.padding) else 0)),
        scratch="scratch" if not in_pairs or any(window.padding) else "NULL",
        instructions=round(num_calls * pixel) + _num_found(operator, inside) * num_taps * PLACE_INSTRUCTIONS,
        passes=Passes.of_product(
            output.num_elements * num_taps, source.num_elements, num_pixels, pixels=repeats, channels=1
        ),
    )  # fmt: skip


def _repeats(operator: QConv2d, inside: tuple[int, int]) -> int:
    """Return the pixels whose channels fill a group of registers together; 1 if their windows are not adjacent."""
    if operator.window.strides[1] > 1:
        return 1
    return max(1, min(2 * REGISTER_BYTES // operator.output.shape[3], inside[1] - inside[0]))


def _num_found(operator: QConv2d, inside: tuple[int, int]) -> int:
    """Return the pixels whose tap addresses are computed one by one: all but those after the first of inner rows."""
    window, (images, rows, columns, _) = operator.window, operator.output.shape
    reach, height = (window.kernel[0] - 1) * window.dilation[0], operator.inputs[0].shape[1]
    tops = (h * window.strides[0] - window.padding[0] for h in range(rows))
    inner_rows = sum(top >= 0 and top + reach < height for top in tops)
    return images * (rows * columns - inner_rows * max(0, inside[1] - inside[0] - 1))


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
KERNEL = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_rvv",
        title="Quantized depthwise convolution, groups of channels of an output pixel at a time",
        operator=QConv2d,
        constraints=(qdepthwise.is_depthwise, has_few_taps, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
