"""Kernels for quantized conv2d by Winograd's F(2x2, 3x3), F(4, 3) and F(2, 5) in integers, by the DSP extension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Constraint, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared import winograd
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import wrapped
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
from codegen_c.targets.dsp.kernels.product import (
    HEADERS,
    INCLUDES,
    TABLES,
    FastRequantize,
    cell_pairs,
    shared_function,
    start,
)

# Shared parts of the kernels by Winograd's tiles on the DSP extension: products of three tiles by two channels, or of
# two tiles by four channels.
#
# Tiles of inputs are transformed in scratch, as many as are multiplied at a time; weights are transformed at compile
# time to a multiple of their value, so that all are integers. Sums are exact modulo 2^32, hence equal to the sums of
# products.

TILES, WIDTH = 3, 2
FOURS_TILES, FOURS_WIDTH = 2, 4
"""Tiles and channels at a time where all loops are whole, on cores that start one instruction in a cycle."""
FOURS_DEPTH = 16
"""Input channels of an iteration of the loop of two tiles."""
TILE_HEADERS = ("tvm_ext_dsp_winograd_patch.h", "tvm_ext_dsp_winograd_product.h")
MOST_BY_ROWS = 1.05
"""Factor of instructions that calls of single rows may take in exchange for a smaller arena."""
PAIR_INSTRUCTIONS = 8
PLACE_INSTRUCTIONS = 14
"""Instructions of a pair of channels at one place, and those around the loop with its first pair."""
DUAL_PAIR_INSTRUCTIONS, DUAL_PLACE_INSTRUCTIONS = 11, 29
"""Instructions on cores that start two in a cycle: of each pair of channels, and those around the loop."""
FOURS_PAIR_INSTRUCTIONS, FOURS_PLACE_INSTRUCTIONS = 15, 9
"""Instructions of two tiles by four channels: of each pair of channels, and those around the loop."""
READ_AHEAD = 1
"""Words after the last weight that the loop for these cores reads and does not use."""


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Tiles of one shape. The functions and types of C are those of the header, with `prefix`.

    places: products of a tile for each pair of channels. pixels: inputs of a tile. outputs: of a tile; rows: of
    outputs. depth: input channels of a product. bits: sums are 2^bits times the layer's. transformed: int16[K, places,
    depth]. tiles_of_calls: tiles of outputs. tile, inputs: parameters for a tile's outputs and for its inputs. members:
    of the layer's structure, beside the common ones. instructions: modelled, of a transformed pair of channels, of a
    tile beside these, and of a channel of a tile's outputs before requantization. by_fours: two tiles by four channels
    at a time, not three by two.
    """

    prefix: str
    places: int
    pixels: int
    outputs: int
    rows: int
    depth: int
    bits: int
    transformed: Array
    tiles_of_calls: Callable[[QConv2d, StoredRows], list[int]]
    tile: str
    inputs: str
    argument: str
    members: dict[str, Value]
    transform_instructions: int
    tile_instructions: int
    output_instructions: int
    border_instructions: float
    """Modelled instructions of tiles that reach beyond the image, in addition to those of all tiles."""
    by_fours: bool = False

    @property
    def tiles(self) -> int:
        """Tiles at a time."""
        return FOURS_TILES if self.by_fours else TILES

    @property
    def width(self) -> int:
        """Output channels at a time."""
        return FOURS_WIDTH if self.by_fours else WIDTH


def has_fours_of_channels(operator: QConv2d, target: Target) -> bool:
    """input channels must be a multiple of 4"""
    return operator.weight.shape[3] % 4 == 0


def constraints(window: Constraint, sums: Constraint) -> tuple[Constraint, ...]:
    """Return the constraints of a kernel by tiles. window: the windows it supports; sums: that their multiples fit."""
    return window, qconv2d.is_ungrouped, has_fours_of_channels, for_speed, *qconv2d.CONSTRAINTS, sums


def loops(prefix: str, *headers: str) -> Loops:
    """Return the loops of the first header. prefix: of its functions and types."""
    return Loops(function=prefix, layer=f"{prefix}_layer", includes=(*headers, *TILE_HEADERS, *INCLUDES, *HEADERS))


def tile_parts(operator: QConv2d, target: Target, stored: StoredRows, form: Tiles) -> Parts:
    is_dual = target.is_dual_issue
    exact, (low, high) = qconv2d.requantize(operator), qconv2d.bounds(operator)
    finish = FastRequantize.of_scaled(exact, low, high, bits=form.bits)
    weights, *others = qconv2d.parameters(operator, finish.exact)[2:-2]
    bias = start(operator.inputs[0], operator.weight, operator.bias) << form.bits
    instructions = _instructions(operator, stored, finish, form, is_dual=is_dual)
    by_rows = _instructions(operator, replace(stored, at_once=1), finish, form, is_dual=is_dual)
    packed = np.pad(pack(form.transformed, form.width), (0, READ_AHEAD if is_dual else 0))
    return Parts(
        parameters=(replace(weights, ctype="uint32_t"), *others),
        constants=(("weights", packed), ("bias", wrapped(bias)), *finish.constants()),
        members={**form.members, **({"is_dual_issue": True} if is_dual else {}), "requantize": finish.members()},
        functions=_functions(form),
        leading=("$_transform", "$_tiles"),
        statements=finish.tables(),
        tables=TABLES,
        scratch_bytes=4 * form.places * form.tiles * (form.depth // 2 + form.width)
        + form.pixels * operator.weight.shape[3],
        instructions=instructions,
        passes=_passes(operator, form),
        # A tile's rows are written together. Calls of single rows may leave most of the tiles unused.
        rows_still_read=form.rows - 1,
        tile_rows=form.rows,
        descends=by_rows <= MOST_BY_ROWS * instructions,
        grows_weights=True,
    )


def pack(transformed: Array, width: int) -> Array:
    """Pack int16[K, place, C] as uint32[K / width][place][pair of input channels][channel of `width`].

    Zeros stand for channels that the last ones lack.
    """
    channels, places, depth = transformed.shape
    whole = np.zeros((-(-channels // width) * width, places, depth), np.int16)
    whole[:channels] = transformed
    pairs = whole[:, :, np.array(cell_pairs(depth))].reshape(-1, width, places, depth // 2, 2)
    return np.ascontiguousarray(pairs.transpose(0, 2, 3, 1, 4)).view(np.uint32).ravel()


def _passes(operator: QConv2d, form: Tiles) -> Passes:
    """Return the traffic: each tile's input is transformed into scratch once, and read from there by each block."""
    (tiles,), channels = form.tiles_of_calls(operator, StoredRows()), operator.output.shape[3]
    groups = tiles / form.tiles
    return Passes(
        constants=max(1.0, groups),
        input=max(1.0, tiles * form.places * form.depth / operator.inputs[0].num_elements),
        scratch=groups * (1 + channels / form.width),
    )


def _instructions(operator: QConv2d, stored: StoredRows, finish: FastRequantize, form: Tiles, *, is_dual: bool) -> int:
    """Return the modelled instructions: transformed tiles, products of each block at each place, results."""
    tiles, channels = form.tiles_of_calls(operator, stored), operator.output.shape[3]
    pairs = form.depth // 2
    place = PLACE_INSTRUCTIONS + PAIR_INSTRUCTIONS * (pairs - 1) + 2 * -(-(pairs - 1) // 8)
    if form.by_fours:
        place = FOURS_PLACE_INSTRUCTIONS + FOURS_PAIR_INSTRUCTIONS * pairs
    elif is_dual:
        place = DUAL_PLACE_INSTRUCTIONS + DUAL_PAIR_INSTRUCTIONS * pairs + 4 * -(-pairs // 8)
    results = form.output_instructions + form.outputs * finish.instructions
    block = 30 + form.places * place + form.tiles * form.width * results
    groups = sum(-(-count // form.tiles) for count in tiles)
    inputs = form.tile_instructions + form.depth // 2 * form.transform_instructions
    return round(groups * -(-channels // form.width) * block + sum(tiles) * inputs + form.border_instructions)


def _functions(form: Tiles) -> tuple[str, str]:
    """Return the two functions that the loops of the header call."""
    compute_parameters = [
        form.tile, "const uint32_t *restrict weights", "const int32_t *restrict bias",
        "const int32_t *restrict multipliers", "const uint8_t *restrict shifts", "uint32_t *restrict places",
    ]  # fmt: skip
    transform = f"{form.prefix}_transform(&$_layer, places, {form.argument});"
    compute = f"{form.prefix}_compute(&$_layer, tiles, weights, bias, multipliers, shifts, places);"
    return (
        shared_function("$_transform", ["uint32_t *restrict places", form.inputs], [transform]),
        shared_function("$_tiles", compute_parameters, [compute]),
    )


# Quantized conv2d by Winograd's F(2x2, 3x3) in integers, by the DSP extension: windows of 3 by 3, stride 1.
#
# int8 or uint8[N, H, W, C], int8[K, 3, 3, C] -> int8 or uint8[N, P, Q, K], sums in int32. Four outputs of a channel
# take 16 products instead of 36, on tiles of 4 by 4 inputs: tvm_ext_dsp_winograd.h has the matrices. Weights take 32 /
# 9 of their bytes. Sums of two tiles by four channels run on over the positions of a row of a tile.

RUNNING_ORDER = (2, 0, 1, 3)
RUNNING_SIGNS = np.array((1, 1, 1, -1), np.int16)
"""Positions of a row of a tile in the order of running sums, and the signs of their weights."""

QWINOGRAD_LOOPS = loops("tvm_ext_dsp_winograd", "tvm_ext_dsp_winograd.h", "tvm_ext_dsp_winograd_fours.h")


def qwinograd_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    channels, _, _, depth = operator.weight.shape
    weights, by_fours = transformed(operator.weight), _by_fours(operator, target)
    if by_fours:
        weights = weights[:, :, RUNNING_ORDER] * RUNNING_SIGNS[:, None]
    along = -(-operator.output.shape[1] // 2) + -(-operator.output.shape[2] // 2)
    form = Tiles(
        prefix=QWINOGRAD_LOOPS.function,
        places=PLACES,
        pixels=16,
        outputs=4,
        rows=2,
        depth=depth,
        bits=SCALE_BITS,
        transformed=weights.reshape(channels, PLACES, depth),
        tiles_of_calls=tiles_of_calls,
        tile="const tvm_ext_dsp_tile tiles[TVM_EXT_DSP_TILES]",
        inputs="const uint8_t *const rows[TVM_EXT_DSP_TILE_ROWS]",
        argument="rows",
        members={"by_fours": True} if by_fours else {},
        transform_instructions=104,
        tile_instructions=90,
        output_instructions=37 if by_fours else 48,
        border_instructions=2 * along * operator.output.shape[0] * (250 + 4 * depth),
        by_fours=by_fours,
    )
    return tile_parts(operator, target, stored, form)


def _by_fours(operator: QConv2d, target: Target) -> bool:
    """Return True if two tiles by four channels fill whole loops, on a core that starts one instruction in a cycle."""
    channels, depth = operator.weight.shape[0], operator.weight.shape[3]
    return channels % FOURS_WIDTH == 0 and depth % FOURS_DEPTH == 0 and not target.is_dual_issue


QWINOGRAD = ProductKernel(loops=QWINOGRAD_LOOPS, reference=qconv2d.reference, parts=qwinograd_parts).kernel(
    Family(
        name="qwinograd_dsp",
        title="Quantized convolution with windows of 3 x 3 and stride 1 by Winograd's F(2x2, 3x3)",
        operator=QConv2d,
        constraints=constraints(is_3x3_of_stride_1, fourfold_sums_fit),
    )
)


# Quantized conv2d by Winograd's F(4, 3) and F(2, 5) along one axis, by the DSP extension: stride 1.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], R or S 3 or 5, sums in int32. Six products
# give four outputs of three taps, or two of five, instead of twelve and ten: one-dimensional convolutions, windows of 1
# by 3, 3 by 1, 5 by 5. Adjacent lines of a window are summed as if they were channels: tvm_ext_dsp_winograd_line.h has
# the matrices. Weights take four times their bytes for three taps, 12 / 5 for five.

PIXEL_INSTRUCTIONS, FOUR_INSTRUCTIONS, WORD_INSTRUCTIONS = 10, 9, 6
"""Modelled instructions of one copied pixel, or of padding: by fours of words, and the remaining words."""


QLINE_LOOPS = loops("tvm_ext_dsp_line", "tvm_ext_dsp_winograd_line.h")


def qline_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    window, transformed = operator.window, winograd.winograd_line_transformed(operator)
    is_upright = winograd.axis(window) == winograd.ROWS
    depth, outputs = transformed.shape[2], winograd.outputs(window)
    fours, words = divmod(operator.weight.shape[3] // 4, 4)
    copied = PIXEL_INSTRUCTIONS + FOUR_INSTRUCTIONS * fours + WORD_INSTRUCTIONS * words
    form = Tiles(
        prefix=QLINE_LOOPS.function,
        places=winograd.WINOGRAD_LINE_PLACES,
        pixels=winograd.WINOGRAD_LINE_PLACES,
        outputs=outputs,
        rows=outputs if is_upright else 1,
        depth=depth,
        bits=winograd.WINOGRAD_LINE_SCALE_BITS,
        transformed=transformed,
        tiles_of_calls=winograd.lines_of_calls,
        tile="const tvm_ext_dsp_line_places tiles[TVM_EXT_DSP_TILES]",
        inputs="const uint8_t *pixels",
        argument="pixels",
        members={"is_upright": True} if is_upright else {},
        transform_instructions=44,
        tile_instructions=10,
        output_instructions=40 if outputs > 2 else 30,
        border_instructions=copied * winograd.pixels_copied(operator, stored),
    )
    return tile_parts(operator, target, stored, form)


QLINE = ProductKernel(loops=QLINE_LOOPS, reference=qconv2d.reference, parts=qline_parts).kernel(
    Family(
        name="qline_dsp",
        title="Quantized convolution with 3 or 5 taps along a line by Winograd's F(4, 3) and F(2, 5)",
        operator=QConv2d,
        constraints=constraints(winograd.has_a_line_of_stride_1, winograd.eightfold_sums_fit),
    )
)


KERNELS = (QWINOGRAD, QLINE)
