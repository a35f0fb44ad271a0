"""conv2d of a QDQ chain by Winograd's F(2x2, 3x3) in integers, in vectors of 8 sums: windows of 3 by 3, stride 1.

int8 or uint8[N, H, W, C], int8[K, 3, 3, C] -> int8 or uint8[N, P, Q, K], sums in int32, modulo 2^32. Tiles of 4 by 4
inputs are transformed in scratch, padding filled in with the zero point, and met by weights that were transformed here:
kernels/shared/winograd.py. Either rounding.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial
from codegen_c.kernels.shared.winograd import (
    PLACES,
    SCALE_BITS,
    for_speed,
    fourfold_sums_fit,
    is_3x3_of_stride_1,
    tiles_of_calls,
    transformed,
)
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.host.kernels.products import (
    PRODUCT_INCLUDES,
    SCRATCH,
    STORED_AT_ONCE,
    UNIT,
    LaneRescale,
    PixelProduct,
    has_no_groups,
    parameters,
    start,
)

LAYER = "tvm_ext_host_winograd_layer"
PLACE_INSTRUCTIONS = 5
"""A block of units at one place, beside products, first sums and stores."""
OUTPUT_INSTRUCTIONS = 64
"""A^T M A of a unit."""
TRANSFORM_INSTRUCTIONS = 74
"""16 channels of a tile's input: 30 by columns, 44 by rows."""


def sums_leave_room(operator: QConv2d, target: Target) -> bool:
    """where a channel's factor is one half or more, its sums must be small enough to be scaled up"""
    low, high = qconv2d.products(operator).range()
    return _rescale(operator).fits(low << SCALE_BITS, high << SCALE_BITS)


def _rescale(operator: QConv2d) -> LaneRescale:
    """Rescaling of four times the sums; where it rounds twice, of the sums themselves."""
    exact, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    if exact.rounding == "tflite":
        return LaneRescale.of(exact, low, high)
    return LaneRescale.of(exact.scaled(SCALE_BITS), low << SCALE_BITS, high << SCALE_BITS)


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output, window = operator.inputs[0], operator.output, operator.window
    depth, channels = source.shape[3], output.shape[3]
    product = PixelProduct(
        runs=PLACES, length=depth, channels=channels, rescale=_rescale(operator), is_widened=True,
        is_unsigned=source.dtype == "uint8", is_packed=False,
    )  # fmt: skip
    columns, pitch = -(-output.shape[2] // 2) * 2 + 2, -(-depth // UNIT) * UNIT
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_host_winograd({layer}, input, output, weights, factors, scratch, row_begin, row_end);"
    (tiles,) = tiles_of_calls(operator, StoredRows())
    numbers = 4 * (columns * depth + STORED_AT_ONCE) + PLACES * pitch
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *parameters(source, output),
                SCRATCH,
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, call]),
            helpers=shapes(LAYER, {
                "input": image(source), "output": image(output, stored=stored),
                "window": sliding_window(window), "columns": columns, "pitch": pitch, "product": product.members(),
            }),
            includes=("tvm_ext_host_winograd.h", *PRODUCT_INCLUDES),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=product.constants(transformed(operator.weight), start(operator) << SCALE_BITS),
        scratch_bytes=4 * PLACES * product.units * UNIT + 2 * numbers + source.shape[2] * depth,
        macs=output.num_elements * operator.weight[0].size,
        instructions=_instructions(operator, stored, product),
        passes=Passes(
            constants=max(1.0, tiles),
            input=max(1.0, 2 * output.shape[0] * output.shape[1] * source.shape[2] * depth / source.num_elements),
            scratch=max(1.0, tiles * PLACES * (2 * pitch + 8 * channels) / (2 * numbers)),
        ),
        accumulation="exact",
        spatial=replace(spatial(window, source, output), behind=1),  # two rows of a tile cost as much as one
        exact=True,
        pitched=True,
        row_pitched=True,
        grows_weights=True,
    )  # fmt: skip


def _instructions(operator: QConv2d, stored: StoredRows, product: PixelProduct) -> int:
    """Modelled instructions: transformed tiles, products at each place, and their results."""
    depth, units = operator.weight.shape[3], -(-product.channels // UNIT)
    blocks, pairs = -(-units // product.units), -(-depth // 2)
    place = blocks * (pairs + PLACE_INSTRUCTIONS) + units * 4 * (pairs + 1)
    outputs = units * (OUTPUT_INSTRUCTIONS + 4 * product.rescale.finish_instructions)
    tile = PLACES * place + outputs + -(-depth // UNIT) * TRANSFORM_INSTRUCTIONS
    return sum(tiles_of_calls(operator, stored)) * tile


KERNEL = Kernel(
    name="qwinograd_host",
    operator=QConv2d,
    implement=implement,
    constraints=(
        is_3x3_of_stride_1,
        has_no_groups,
        for_speed,
        *qconv2d.CONSTRAINTS,
        fourfold_sums_fit,
        sums_leave_room,
    ),
)
