"""Kernel for quantized conv2d by Winograd's F(2x2, 3x3) in integers, in vectors of 8 sums: windows of 3 by 3, stride 1.

int8 or uint8[N, H, W, C], int8[K, 3, 3, C] -> int8 or uint8[N, P, Q, K], sums in int32, modulo 2^32. Tiles of 4 by 4
inputs are transformed in scratch, with the zero point as padding, and multiplied by weights that were transformed at
compile time: kernels/shared/winograd.py. Either rounding. The package has the weights of the direct convolution, too,
which is faster on processors that add four products of 8 bits in one instruction: the C compiler chooses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
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
    FACTORS,
    PRODUCT_INCLUDES,
    UNIT,
    LaneRescale,
    convolution_parts,
    rescale,
)

LOOPS = Loops(
    function="tvm_ext_host_winograd", layer="tvm_ext_host_winograd_layer",
    includes=(
        "tvm_ext_host_winograd.h", "tvm_ext_host_pairs.h", "tvm_ext_i32x8.h", "tvm_ext_i32x8_plain.h",
        *PRODUCT_INCLUDES,
    ),
)  # fmt: skip
STORED_AT_ONCE = 16
"""16-bit numbers that a transformed row stores at once."""
MOST_UNITS = 4
RUN_INSTRUCTIONS = 4
"""Modelled instructions around a run of products."""
PLACE_INSTRUCTIONS = 5
"""Instructions of a block of units at one place, beside products, first sums and stores."""
OUTPUT_INSTRUCTIONS = 64
"""Instructions of A^T M A of a unit."""
TRANSFORM_INSTRUCTIONS = 74
"""Instructions for 16 channels of a tile's input: 30 by columns, 44 by rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairProduct:
    """Products at one position of a tile: runs of `length` numbers of 16 bits with the weights of all channels."""

    length: int
    channels: int
    rescale: LaneRescale

    @property
    def units(self) -> int:
        """Return the units of a block: the same in every block, except that the last may have fewer."""
        total = -(-self.channels // UNIT)
        return -(-total // -(-total // MOST_UNITS))

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_host_pairs`."""
        return {
            "length": self.length, "channels": self.channels, "units": self.units, "rescale": self.rescale.members(),
        }  # fmt: skip

    def pack(self, weight: Array) -> Array:
        """Pack int16[K, 16 positions, C], block by block of units: [positions][pairs][units][16 channels][2]."""
        full = np.zeros((-(-self.channels // UNIT) * UNIT, PLACES, -(-self.length // 2) * 2), dtype=np.int16)
        full[: self.channels, :, : self.length] = weight.reshape(self.channels, PLACES, self.length)
        units = full.reshape(-1, UNIT, PLACES, full.shape[2] // 2, 2).transpose(2, 3, 0, 1, 4)
        blocks = [units[:, :, first : first + self.units] for first in range(0, units.shape[2], self.units)]
        return np.concatenate([block.ravel() for block in blocks])


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
    product = PairProduct(length=depth, channels=channels, rescale=_rescale(operator))
    columns, pitch = -(-output.shape[2] // 2) * 2 + 2, -(-depth // UNIT) * UNIT
    (tiles,) = tiles_of_calls(operator, StoredRows())
    direct = convolution_parts(operator, target, stored)
    numbers = 4 * (columns * depth + STORED_AT_ONCE) + PLACES * pitch
    return Parts(
        parameters=(
            Parameter(name="weights", ctype="int16_t", role="constant"),
            FACTORS,
            *(replace(parameter, name=f"direct_{parameter.name}") for parameter in direct.parameters),
        ),
        constants=(
            ("weights", product.pack(transformed(operator.weight))),
            ("factors", product.rescale.table(qconv2d.start_of(operator) << SCALE_BITS)),
            *((f"direct_{name}", array) for name, array in direct.constants),
        ),
        tables=("weights", "factors", "direct_weights", "direct_factors"),
        members={
            "columns": columns,
            "pitch": pitch,
            "product": product.members(),
            "direct": rescale(operator).members(),
        },
        scratch_bytes=max(
            4 * PLACES * product.units * UNIT + 2 * numbers + source.shape[2] * depth, direct.scratch_bytes
        ),
        instructions=_instructions(operator, stored, product),
        passes=Passes(
            constants=max(1.0, tiles),
            input=max(1.0, 2 * output.shape[0] * output.shape[1] * source.shape[2] * depth / source.num_elements),
            scratch=max(1.0, tiles * PLACES * (2 * pitch + 8 * channels) / (2 * numbers)),
        ),
        rows_still_read=1,
        tile_rows=2,
        grows_weights=True,
    )


def _instructions(operator: QConv2d, stored: StoredRows, product: PairProduct) -> int:
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
            qconv2d.is_ungrouped,
            for_speed,
            *qconv2d.CONSTRAINTS,
            fourfold_sums_fit,
            sums_leave_room,
        ),
    )
)
