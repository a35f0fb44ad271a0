"""Kernel for quantized depthwise conv2d with Helium, two rows by two columns of a channel from a square of 4 x 4 bytes.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8[N, H, W, C], sums in int32; windows of up to 3 x 3 and stride 1. The
four input rows of two output rows are copied to scratch, interleaved by bytes: a square is four gathered words, and a
vector of weights for each of its four windows makes a sum of it by one instruction. A group of channels is computed
from the first row to the last, so that its weights are read once for many rows, and the output may take the memory of
the input. Padding is the zero point. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qdepthwise import is_depthwise
from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.helium.kernels.convolution import rescale, start, sums_leave_room
from codegen_c.targets.helium.kernels.product import PARAMETERS, PRODUCT_INCLUDES, flip

VECTOR = 16
WORD = 4
SQUARE = 4  # rows and columns
FEWEST_COLUMNS = 5
MOST_STRIPS = 8
MOST_MOVE = 508  # limit of the instruction's address increment
MOST_PLACE = 1 << 16
FACTOR_BYTES = 13  # of a channel, or 9, and the zero after its taps
CHANNEL_BYTES = 140  # bytes of constants per channel: indices, gathered weights, factors
SMALL_BYTES = 8192  # bytes of an input beside which more scratch would be a large part of an arena
SMALL_SHARE, SHARE = 5, 2  # largest share of an input that scratch may take
MOST_SCRATCH_BYTES = 8192
LOOPS = Loops(
    function="tvm_ext_helium_squares", layer="tvm_ext_helium_squares_layer",
    includes=(
        "tvm_ext_helium_squares.h", "tvm_ext_helium_square_lanes.h", "tvm_ext_helium_square_plain.h",
        "tvm_ext_helium_lanes.h", *PRODUCT_INCLUDES,
    ),
    accumulation="products of r, s in vectors of 16, then bias", row_pitched=False,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Channels and strips (two output rows) that are copied and computed together, and their output columns.

    shares_padding: strips lie one column apart. is_run: all channels, fewer than 16, are copied as runs of bytes.
    """

    columns: int
    group: int
    strips: int
    shares_padding: bool
    is_run: bool

    @property
    def strip_bytes(self) -> int:
        """Bytes from strip to strip."""
        return (self.columns + (1 if self.shares_padding else 2)) * self.group * WORD

    @property
    def scratch_bytes(self) -> int:
        padding = self.group * WORD if self.shares_padding else 0
        # Copies of 16 bytes of four rows end in the last column of padding, where whole or half vectors are copied.
        beyond = 0 if self.shares_padding and not self.is_run and self.group in (VECTOR, VECTOR // 2) else VECTOR * WORD
        return self.strips * self.strip_bytes + padding + beyond

    @property
    def is_narrow(self) -> bool:
        """True if blocks go down from strip to strip: rows have one block, and strips are close together."""
        return self.columns < 2 * SQUARE and self.strip_bytes <= MOST_MOVE

    @property
    def has_down(self) -> bool:
        """True if a row's last two columns are computed for two strips at once."""
        return self.columns % SQUARE in (1, 2) and self.strip_bytes <= MOST_MOVE and self.strips > 1

    def blocks(self, rows: int) -> tuple[int, int]:
        """Return (blocks of eight results, loops over them) of one channel of a tile of `rows` output rows."""
        strips, whole = -(-rows // 2), rows // 2
        rest = self.columns % SQUARE > 0
        loops = (min(whole, 1) + rows % 2) if self.is_narrow else strips
        across = strips * (self.columns // SQUARE)
        if rest and self.has_down and whole > 1:
            down = -(-whole // 2)
            return across + down + rows % 2, loops + 1 + whole % 2 + rows % 2
        again = strips if rest else 0
        return across + again, loops * (2 if rest else 1)


def keeps_places(operator: QConv2d, target: Target) -> bool:
    """strides and dilations must be 1, the output of the input's shape, and at most one row of padding above"""
    window = operator.window
    same = operator.inputs[0].shape == operator.output.shape and window.strides == window.dilation == (1, 1)
    return same and window.padding[0] <= 1


def is_small(operator: QConv2d, target: Target) -> bool:
    """the window must have at most three rows and columns"""
    return max(operator.window.kernel) < SQUARE


def many_columns(operator: QConv2d, target: Target) -> bool:
    """there must be at least five columns and four channels, and four rows must have less than 65536 bytes"""
    _, _, columns, channels = operator.output.shape
    return columns >= FEWEST_COLUMNS and channels >= WORD and SQUARE * columns * channels < MOST_PLACE


def is_limited_as_int8(operator: QConv2d, target: Target) -> bool:
    """the output must be int8 with all its values"""
    return operator.output.dtype == "int8" and (operator.low, operator.high) == (-128, 127)


def rounds_up(operator: QConv2d, target: Target) -> bool:
    """sums halfway between two results must round up, or all channels must have one shift; not in floats"""
    finish = rescale(operator)
    if finish.requantize.rounding == "litert":
        return False
    if finish.is_twice:
        return bool(finish.members()["rounds_up"])
    return not (finish.halves_even or finish.left_shift) or _factors(operator)[1] > 0


def squares_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    output = operator.output
    rows = stored.at_once or output.shape[1]
    is_whole = stored.output is None and not any(stored.inputs) and stored.at_once is None
    tile = _tile(operator, rows, is_whole=is_whole)
    multipliers, narrow = _factors(operator)
    tiles = -(-output.shape[1] // (2 * tile.strips))
    return Parts(
        parameters=PARAMETERS,
        constants=(("weights", pack(operator.weight)), ("factors", multipliers)),
        members=_members(operator, stored, tile, narrow),
        functions=(_copied(operator, tile),),
        leading=("$_copied",),
        scratch_bytes=tile.scratch_bytes,
        instructions=_instructions(operator, tile, rows, is_shifted=narrow == 0),
        passes=Passes(
            constants=tiles * CHANNEL_BYTES / (operator.weight[0].size + FACTOR_BYTES),
            input=2.0,
            scratch=(SQUARE + SQUARE) * output.num_elements / tile.scratch_bytes,
        ),
        rows_still_read=rows - 1,  # each channel reads its rows again
        is_in_place=is_whole,
    )


def _tile(operator: QConv2d, rows: int, *, is_whole: bool) -> Tile:
    """Return the tile of least cost within a limit of scratch.

    The limit is what two rows and a window take, or a share of the input.
    """
    _, _, columns, channels = operator.output.shape
    shares, is_run = operator.window.padding[1] == 1, channels < VECTOR
    if not is_whole or rows == 1:
        return Tile(columns=columns, group=min(channels, VECTOR), strips=1, shares_padding=shares, is_run=is_run)
    most = columns * channels * 2 + operator.weight[0].size * channels
    share = SMALL_SHARE if operator.inputs[0].num_elements <= SMALL_BYTES else SHARE
    most = max(most, operator.inputs[0].num_elements // share)
    most = min(most, MOST_SCRATCH_BYTES)
    groups = [channels] if channels < VECTOR else [VECTOR, VECTOR // 2]
    ways = [
        Tile(columns=columns, group=group, strips=strips, shares_padding=shares, is_run=is_run)
        for group in groups
        for strips in range(1, min(MOST_STRIPS, -(-rows // 2)) + 1)
        if group in (channels, VECTOR) or strips > 1  # a copy of half vectors ends in the next column
    ]
    fitting = [way for way in ways if way.scratch_bytes <= most] or ways[:1]
    return min(fitting, key=lambda way: (_instructions(operator, way, rows, is_shifted=True), way.scratch_bytes))


def pack(weight: Array) -> Array:
    """Pack int8: for each window of a square, the tap (or the zero after them) of each byte, row by row; then the taps.

    Each channel's taps are followed by a zero.
    """
    places = _places(*weight.shape[1:3]).astype(np.int8)
    return np.concatenate([places, np.pad(weight.reshape(weight.shape[0], -1), ((0, 0), (0, 1))).ravel()])


def _places(rows: int, columns: int) -> Array:
    """Return int[4 * 16]: index of the tap in each byte of a square, for windows at its four corners."""
    shape = (SQUARE, SQUARE, WORD)
    window, word, byte = np.indices(shape)
    row, column = byte - window // 2, word - window % 2
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    return np.where(inside, row * columns + column, rows * columns).ravel()


def _factors(operator: QConv2d) -> tuple[Array, int]:
    """Return int32[C, 3]:

    starts, multipliers, shifts of doubled products, and 0; or int32[C, 2], and the common shift.
    """
    finish = rescale(operator)
    table = finish.table(start(operator), np.arange(1)).reshape(-1, 3)
    common = CommonShift.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())
    if common:
        table[:, 1] = common.multiplier
        return np.ascontiguousarray(table[:, :2]), common.shift + 1
    if not finish.is_twice:
        table[:, 2] -= 1
    return table, 0


def _instructions(operator: QConv2d, tile: Tile, rows: int, *, is_shifted: bool) -> int:
    """Return the modelled instructions: copies, the start of a channel of a tile, and its blocks of eight results."""
    images, height, columns, channels = operator.output.shape
    groups = -(-channels // tile.group)
    vectors = -(-columns * channels // VECTOR) if tile.is_run else columns
    vector = (10 if tile.is_run or channels <= 127 else 14) + (4 if flip(operator.inputs[0]) else 0)
    total = 60
    for begin in range(0, height, rows):
        end = min(begin + rows, height)
        total += 60
        for top in range(begin, end, 2 * tile.strips):
            count = min(2 * tile.strips, end - top)
            blocks, loops = tile.blocks(count)
            copies = -(-count // 2) * (115 + vector * vectors) + (5 * vectors if top > begin else 0)
            channel = 24 + 11 * loops + (27 if is_shifted else 25) * blocks
            total += groups * (60 + copies) + channels * channel
    return images * total


def _members(operator: QConv2d, stored: StoredRows, tile: Tile, narrow: int) -> dict[str, Value]:
    kept = 2 if stored.output is None else stored.output.stored
    near = kept * operator.output.shape[2] * (stored.pitch or operator.output.shape[3]) < MOST_PLACE
    return {
        "group": tile.group, "tile_rows": 2 * tile.strips if near else 1,
        "is_narrow": tile.is_narrow, "has_down": tile.has_down, "narrow": narrow,
        "rescale": rescale(operator).members(),
    }  # fmt: skip


def _copied(operator: QConv2d, tile: Tile) -> str:
    """Return `$_copied`, a tvm_ext_squares_copied."""
    parameters = [
        "uint8_t *target", "const uint8_t *from", "const uint8_t *const *rows", "int32_t count", "int32_t lanes",
    ]  # fmt: skip
    channels = operator.output.shape[3]
    pitch, step = (VECTOR, VECTOR * WORD) if tile.is_run else (channels, tile.group * WORD)
    constants = f"{pitch}, {step}, {'true' if flip(operator.inputs[0]) else 'false'}"
    lines = [
        "if (from != NULL) {",
        f"    tvm_ext_squares_move_on(target, from, rows, count, lanes, {constants});",
        "} else {",
        f"    tvm_ext_squares_copy(target, rows, count, lanes, {constants});",
        "}",
    ]
    return apart("$_copied", parameters, lines)


SQUARES = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=squares_parts)
KERNEL = SQUARES.kernel(
    Family(
        name="qdepthwise_squares_helium",
        title="Quantized depthwise convolution, 2 x 2 results of a channel from 4 x 4 bytes at a time",
        operator=QConv2d,
        constraints=(
            is_depthwise, *qconv2d.CONSTRAINTS, keeps_places, is_small, many_columns, is_limited_as_int8,
            sums_leave_room, rounds_up,
        ),
    )
)  # fmt: skip
