"""conv2d of a QDQ chain in vectors of 8 sums: one output pixel by up to 64 channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32, modulo 2^32. Rows that windows
read are copied to scratch as 16-bit numbers, padding filled in with the zero point. Either rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.kernels.shared.winograd import for_speed
from codegen_c.operators.kinds import Array, PackedQConv2d, QConv2d, TensorType, Window
from codegen_c.targets.host.kernels.sums_host import (
    MOST_UNITS,
    PRODUCT_INCLUDES,
    SCRATCH,
    UNIT,
    LaneRescale,
    PixelProduct,
    parameters,
)

LAYER = "tvm_ext_host_conv2d_layer"
STORED_AT_ONCE = 16
"""Numbers that copies of rows store at once."""


def has_no_groups(operator: QConv2d, target: Target) -> bool:
    """the convolution must not have groups"""
    return operator.groups == 1


def sums_leave_room(operator: QConv2d, target: Target) -> bool:
    """where a channel's factor is one half or more, its sums must be small enough to be scaled up"""
    return rescale(operator).fits(*qconv2d.products(operator).range())


def rescale(operator: QConv2d) -> LaneRescale:
    return LaneRescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


def start(operator: QConv2d) -> Array:
    """int64[K]: bias less the zero point times all weights, as padding is read like the input."""
    zero_point = quantization(operator.inputs[0]).zero_point
    taps = operator.weight.reshape(operator.weight.shape[0], -1).astype(np.int64)
    return operator.bias.astype(np.int64) - zero_point * taps.sum(axis=1)


def row_numbers(window: Window, source: TensorType, pitch: int) -> int:
    """16-bit numbers of a row with its padding, whose pixels lie `pitch` apart."""
    return (window.padding[1] + source.shape[2] + window.padding[3]) * pitch


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
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
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_host_conv2d({layer}, input, output, weights, factors, scratch, row_begin, row_end);"
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *parameters(source, output, is_packed=product.is_packed),
                SCRATCH,
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, call]),
            helpers=shapes(LAYER, {
                "input": image(source), "output": image(output, stored=stored),
                "window": sliding_window(window), "product": product.members(),
            }),
            includes=PRODUCT_INCLUDES,
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=product.constants(operator.weight, start(operator)),
        scratch_bytes=2 * (copied + STORED_AT_ONCE),
        macs=output.num_elements * operator.weight[0].size,
        instructions=num_pixels * product.instructions + output.shape[0] * output.shape[1] * copied * 3 // 16,
        passes=Passes.of_product(
            output.num_elements * operator.weight[0].size, source.num_elements, num_pixels, pixels=1,
            channels=UNIT * MOST_UNITS,
        ),
        accumulation="products with r, s, c ascending in pairs, modulo 2^32",
        spatial=spatial(window, source, output),
        exact=True,
        pitched=True,
        row_pitched=True,
        grows_weights=not product.is_packed,
    )  # fmt: skip


KERNEL = Kernel(
    name="qconv2d_host",
    operator=QConv2d,
    implement=implement,
    constraints=(for_speed, has_no_groups, *qconv2d.CONSTRAINTS, sums_leave_room),
)
