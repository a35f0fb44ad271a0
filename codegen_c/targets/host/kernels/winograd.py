"""Kernel for quantized conv2d by Winograd's F(2x2, 3x3) in integers, in vectors of 8 sums: windows of 3 by 3, stride 1.

int8 or uint8[N, H, W, C], int8[K, 3, 3, C] -> int8 or uint8[N, P, Q, K], sums in int32, modulo 2^32. Tiles of 4 by 4
inputs are transformed in scratch, with the zero point as padding, and multiplied by weights that were transformed at
compile time: kernels/shared/winograd.py. Either rounding.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel, room_for_sums
from codegen_c.kernels.shared.winograd import (
    PLACES,
    SCALE_BITS,
    for_speed,
    fourfold_sums_fit,
    is_3x3_of_stride_1,
    tiles_of_calls,
    transformed,
)
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.host.kernels.products import (
    PRODUCT_INCLUDES,
    STORED_AT_ONCE,
    UNIT,
    LaneRescale,
    PixelProduct,
    has_no_groups,
    packed_parameters,
    start,
)

LOOPS = Loops(
    function="tvm_ext_host_winograd", layer="tvm_ext_host_winograd_layer",
    includes=("tvm_ext_host_winograd.h", *PRODUCT_INCLUDES),
)  # fmt: skip
PLACE_INSTRUCTIONS = 5
"""Instructions of a block of units at one place, beside products, first sums and stores."""
OUTPUT_INSTRUCTIONS = 64
"""Instructions of A^T M A of a unit."""
TRANSFORM_INSTRUCTIONS = 74
"""Instructions for 16 channels of a tile's input: 30 by columns, 44 by rows."""


def _bounds(operator: QConv2d) -> tuple[Array, Array]:
    """Return four times the least and the largest sum of each channel."""
    low, high = qconv2d.bounds(operator)
    return low << SCALE_BITS, high << SCALE_BITS


def _rescale(operator: QConv2d) -> LaneRescale:
    """Return the requantization of four times the sums; with two roundings, of the sums themselves."""
    exact, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    if exact.rounding != "onnx":
        return LaneRescale.of(exact, low, high)
    return LaneRescale.of(exact.scaled(SCALE_BITS), low << SCALE_BITS, high << SCALE_BITS)


sums_leave_room = room_for_sums(_rescale, _bounds, least_factor="one half")


def winograd_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output = operator.inputs[0], operator.output
    depth, channels = source.shape[3], output.shape[3]
    product = PixelProduct(
        runs=PLACES, length=depth, channels=channels, rescale=_rescale(operator), is_widened=True,
        is_unsigned=source.dtype == "uint8", is_packed=False,
    )  # fmt: skip
    columns, pitch = -(-output.shape[2] // 2) * 2 + 2, -(-depth // UNIT) * UNIT
    (tiles,) = tiles_of_calls(operator, StoredRows())
    numbers = 4 * (columns * depth + STORED_AT_ONCE) + PLACES * pitch
    return Parts(
        parameters=packed_parameters(is_packed=False),
        constants=product.constants(transformed(operator.weight), start(operator) << SCALE_BITS),
        members={"columns": columns, "pitch": pitch, "product": product.members()},
        scratch_bytes=4 * PLACES * product.units * UNIT + 2 * numbers + source.shape[2] * depth,
        instructions=_instructions(operator, stored, product),
        passes=Passes(
            constants=max(1.0, tiles),
            input=max(1.0, 2 * output.shape[0] * output.shape[1] * source.shape[2] * depth / source.num_elements),
            scratch=max(1.0, tiles * PLACES * (2 * pitch + 8 * channels) / (2 * numbers)),
        ),
        rows_behind=1,
        tile_rows=2,
        grows_weights=True,
    )


def _instructions(operator: QConv2d, stored: StoredRows, product: PixelProduct) -> int:
    """Return the modelled instructions: transformed tiles, products at each place, and their results."""
    depth, units = operator.weight.shape[3], -(-product.channels // UNIT)
    blocks, pairs = -(-units // product.units), -(-depth // 2)
    place = blocks * (pairs + PLACE_INSTRUCTIONS) + units * 4 * (pairs + 1)
    outputs = units * (OUTPUT_INSTRUCTIONS + 4 * product.rescale.finish_instructions)
    tile = PLACES * place + outputs + -(-depth // UNIT) * TRANSFORM_INSTRUCTIONS
    return sum(tiles_of_calls(operator, stored)) * tile


WINOGRAD = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=winograd_parts)
KERNEL = WINOGRAD.kernel(
    Family(
        name="qwinograd_host",
        title="Quantized convolution with windows of 3 x 3 and stride 1 by Winograd's F(2x2, 3x3)",
        operator=QConv2d,
        constraints=(
            is_3x3_of_stride_1,
            has_no_groups,
            for_speed,
            *qconv2d.CONSTRAINTS,
            fourfold_sums_fit,
            sums_leave_room,
        ),
    )
)
