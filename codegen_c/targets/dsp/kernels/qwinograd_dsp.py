"""conv2d of a QDQ chain by Winograd's F(2x2, 3x3) in integers, by the DSP extension: windows of 3 by 3, stride 1.

int8 or uint8[N, H, W, C], int8[K, 3, 3, C] -> int8 or uint8[N, P, Q, K], sums in int32. Four outputs of a channel take
16 products instead of 36: tiles of 4 by 4 inputs are transformed in scratch, three at a time, and met by weights that
were transformed here, at four times their value, so that all are integers. Sums are exact modulo 2^32, hence the very
ones of products: tvm_ext_dsp_winograd.h has the matrices. Weights take 32 / 9 of their bytes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.initializer import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.window import spatial
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
from codegen_c.targets.dsp.kernels.product_dsp import INCLUDES, cell_pairs, shared_function, start, wrapped
from codegen_c.targets.dsp.kernels.qconv2d_dsp import is_ungrouped
from codegen_c.targets.dsp.kernels.requantize_dsp import HEADERS, FastRequantize

TILES, WIDTH = 3, 2
LAYER = "tvm_ext_dsp_winograd_layer"
COMPUTE_PARAMETERS = [
    "const tvm_ext_dsp_tile tiles[TVM_EXT_DSP_TILES]", "const uint32_t *restrict weights",
    "const int32_t *restrict bias", "const int32_t *restrict multipliers", "const uint8_t *restrict shifts",
    "uint32_t *restrict places",
]  # fmt: skip
TRANSFORM_PARAMETERS = ["uint32_t *restrict places", "const uint8_t *const rows[TVM_EXT_DSP_TILE_ROWS]"]
PAIR_INSTRUCTIONS = 8
PLACE_INSTRUCTIONS = 14
"""Entering and leaving the loop over channels at one place, its first pair of them included."""
OUTPUT_INSTRUCTIONS = 48
TRANSFORM_INSTRUCTIONS = 104
"""A pair of channels of one tile."""
TILE_INSTRUCTIONS = 90
BORDER_INSTRUCTIONS = 250


def has_fours_of_channels(operator: QConv2d, target: Target) -> bool:
    """input channels must be a multiple of 4"""
    return operator.weight.shape[3] % 4 == 0


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    exact, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    finish = FastRequantize.of_scaled(exact, low, high, bits=SCALE_BITS)
    *shared, row_begin, row_end = qconv2d.parameters(operator, finish.exact)
    shared = [replace(p, ctype="uint32_t") if p.name == "weights" else p for p in shared]
    bias = start(operator.inputs[0], operator.weight, operator.bias) << SCALE_BITS
    depth, window = operator.weight.shape[3], operator.window
    rows = spatial(window, operator.inputs[0], operator.output)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *shared, Parameter(name="scratch", ctype="uint8_t", role="scratch"), row_begin, row_end,
            ),
            body=_body(stored, finish),
            helpers=_helpers(operator, stored, finish),
            includes=("tvm_ext_dsp_winograd.h", "tvm_ext_dsp_winograd_product.h", *INCLUDES, *HEADERS),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", pack(operator.weight)), ("bias", wrapped(bias)), *finish.constants()),
        scratch_bytes=4 * PLACES * TILES * (depth // 2 + WIDTH) + PLACES * depth,
        macs=operator.output.num_elements * operator.weight[0].size,
        instructions=_instructions(operator, stored, finish),
        passes=_passes(operator),
        accumulation="exact",
        spatial=replace(rows, behind=1),  # a tile's rows are written together
        exact=True,
        pitched=True,
        grows_weights=True,
    )  # fmt: skip


def pack(weight: Array) -> Array:
    """int8[K, 3, 3, C] -> uint32[K / 2][place][pair of input channels][channel of two], with zeros for a last one."""
    channels, depth = weight.shape[0], weight.shape[3]
    even = np.zeros((-(-channels // WIDTH) * WIDTH, PLACES, depth), np.int16)
    even[:channels] = transformed(weight).reshape(channels, PLACES, depth)
    pairs = even[:, :, np.array(cell_pairs(depth))].reshape(-1, WIDTH, PLACES, depth // 2, 2)
    return np.ascontiguousarray(pairs.transpose(0, 2, 3, 1, 4)).view(np.uint32).ravel()


def _passes(operator: QConv2d) -> Passes:
    """Each tile's input is transformed into scratch once, and read from there for every two channels."""
    (tiles,), channels = tiles_of_calls(operator, StoredRows()), operator.output.shape[3]
    groups = tiles / TILES
    return Passes(
        constants=max(1.0, groups),
        input=max(1.0, tiles * PLACES * operator.weight.shape[3] / operator.inputs[0].num_elements),
        scratch=groups * (1 + channels / WIDTH),
    )


def _instructions(operator: QConv2d, stored: StoredRows, finish: FastRequantize) -> int:
    """Modelled instructions: transformed tiles, products of three by two channels at each place, results."""
    depth, channels, columns = operator.weight.shape[3], operator.output.shape[3], operator.output.shape[2]
    tiles = tiles_of_calls(operator, stored)
    rest = depth // 2 - 1
    place = PLACE_INSTRUCTIONS + PAIR_INSTRUCTIONS * rest + 2 * -(-rest // 8)
    block = 30 + PLACES * place + TILES * WIDTH * (OUTPUT_INSTRUCTIONS + 4 * finish.instructions)
    groups = sum(-(-count // TILES) for count in tiles)
    inputs = TILE_INSTRUCTIONS + depth // 2 * TRANSFORM_INSTRUCTIONS
    along = -(-operator.output.shape[1] // 2) + -(-columns // 2)
    border = 2 * along * operator.output.shape[0] * (BORDER_INSTRUCTIONS + 4 * depth)
    return groups * -(-channels // WIDTH) * block + sum(tiles) * inputs + border


def _helpers(operator: QConv2d, stored: StoredRows, finish: FastRequantize) -> str:
    """The layer's shapes as tvm_ext_dsp_winograd.h takes them, and the two functions that its loops call."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, pitch=stored.pitch),
        "window": sliding_window(operator.window),
        "requantize": finish.members(),
    }
    transform = "tvm_ext_dsp_winograd_transform(&$_layer, places, rows);"
    compute = "tvm_ext_dsp_winograd_compute(&$_layer, tiles, weights, bias, multipliers, shifts, places);"
    return "\n".join(
        (
            shapes(LAYER, members),
            shared_function("$_transform", TRANSFORM_PARAMETERS, [transform]),
            shared_function("$_tiles", COMPUTE_PARAMETERS, [compute]),
        )
    )


def _body(stored: StoredRows, finish: FastRequantize) -> str:
    """The loops of tvm_ext_dsp_winograd.h."""
    rings, layer = with_rings(LAYER, stored)
    call = (
        f"tvm_ext_dsp_winograd({layer}, $_transform, $_tiles, input, output, weights, bias, multiplier, shift, "
        "scratch, row_begin, row_end);"
    )
    return "\n".join([*rings, *finish.tables(), call])


KERNEL = Kernel(
    name="qwinograd_dsp",
    operator=QConv2d,
    implement=implement,
    constraints=(
        is_3x3_of_stride_1,
        is_ungrouped,
        has_fours_of_channels,
        for_speed,
        *qconv2d.CONSTRAINTS,
        fourfold_sums_fit,
    ),
)
