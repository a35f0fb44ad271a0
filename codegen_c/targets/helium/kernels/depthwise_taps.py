"""Kernel for quantized depthwise conv2d with Helium, taps in lanes: four columns of one output row, or two, at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. Input rows are copied to
scratch, interleaved by fours, so that the four bytes of a column are one word: the window of a sum is a few gathered
words, and one instruction computes 16 products of it. Padding is the zero point. If channels are no whole vectors, the
last 16 are copied whole; fewer than 16 are copied as one run. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qdepthwise import is_depthwise
from codegen_c.kernels.measurements import Block
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.helium.kernels.convolution import rescale, start, sums_leave_room
from codegen_c.targets.helium.kernels.product import PARAMETERS, PRODUCT_INCLUDES, flip

VECTOR = 16
WORD = 4
COLUMNS = 4  # of one block of results
FEWEST_COLUMNS = 6
MOST_ROWS = 2 * WORD
MOST_TAPS = 254  # indices of taps, and of a zero after them, are bytes
MOST_MOVE = 508  # limit of the instruction's address increment
MOST_PLACE = 1 << 16
MOST_SCRATCH_BYTES = {1: 2048, 2: 4096}  # by planes
LOOPS = Loops(
    function="tvm_ext_helium_taps", layer="tvm_ext_helium_taps_layer",
    includes=("tvm_ext_helium_taps.h", "tvm_ext_helium_lanes.h", *PRODUCT_INCLUDES),
    accumulation="products of r, s in vectors of 16, then bias", row_pitched=False,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LaneBlocking:
    """Sizes of tvm_ext_helium_taps_layer; copy_columns: input columns of a tile, idle lanes included.

    packed_rows: output rows per block for which weights are packed, whatever rows are stored.
    """

    rows: int
    packed_rows: int
    planes: int
    vectors: int
    group: int
    tile_columns: int
    copy_columns: int

    @classmethod
    def of(cls, operator: QConv2d, rows: int, packed_rows: int | None = None) -> LaneBlocking:
        """Return the blocking of `rows` output rows per block, with weights packed for as many rows or more."""
        window, group = operator.window, min(operator.inputs[0].shape[3], VECTOR)
        planes = -(-_window_rows(operator, rows) // WORD)
        vectors = -(-window.kernel[1] * planes // WORD)
        known = cls(
            rows=rows, packed_rows=packed_rows or rows, planes=planes, vectors=vectors, group=group, tile_columns=0,
            copy_columns=0,
        )  # fmt: skip
        columns = operator.output.shape[2]
        tiles = [t for t in range(COLUMNS, columns, COLUMNS) if columns % t == 0 or columns % t >= COLUMNS]
        ways = [
            replace(known, tile_columns=t, copy_columns=known._copied(operator, t)) for t in (columns, *tiles[::-1])
        ]
        most = MOST_SCRATCH_BYTES.get(planes, 0)
        return next((way for way in ways if way.scratch_bytes <= most), ways[-1])

    def _copied(self, operator: QConv2d, tile: int) -> int:
        window = operator.window
        lanes = self.vectors * WORD // self.planes
        return (tile - 1) * window.strides[1] + (lanes - 1) * window.dilation[1] + 1

    @property
    def table_bytes(self) -> int:
        """Bytes of one channel's weights in the order of the words, if they do not stay in registers."""
        return self.vectors * self.rows * VECTOR if self.vectors > 1 else 0

    @property
    def scratch_bytes(self) -> int:
        return VECTOR + self.table_bytes + self.planes * self.copy_columns * self.group * WORD


def _window_rows(operator: QConv2d, rows: int) -> int:
    """Return the rows of the window, or of two windows one below the other."""
    return (rows - 1) * operator.window.strides[0] + operator.window.kernel[0]


def few_rows(operator: QConv2d, target: Target) -> bool:
    """the window must have at most 8 rows and at most 254 taps"""
    rows, columns = operator.window.kernel
    return rows <= MOST_ROWS and rows * columns <= MOST_TAPS


def many_columns(operator: QConv2d, target: Target) -> bool:
    """rows of the output must have at least six columns, because four are computed at a time"""
    return operator.output.shape[2] >= FEWEST_COLUMNS


def near_columns(operator: QConv2d, target: Target) -> bool:
    """strides and dilations must be small, because addresses advance by at most 508 bytes; channels below 16384"""
    window, one = operator.window, LaneBlocking.of(operator, 1)
    column_bytes = one.group * WORD
    moves = (window.strides[1], WORD // one.planes * window.dilation[1] - 3 * window.strides[1])
    return max(map(abs, moves)) * column_bytes <= MOST_MOVE and COLUMNS * operator.output.shape[3] < MOST_PLACE


def long_runs(operator: QConv2d, target: Target) -> bool:
    """with fewer than 16 channels, the columns that a tile reads of the input must have at least 16 elements"""
    window, columns, channels = operator.window, operator.inputs[0].shape[2], operator.inputs[0].shape[3]
    if channels >= VECTOR:
        return True
    for rows in (1, 2):
        blocking = LaneBlocking.of(operator, rows)
        for w in range(0, operator.output.shape[2], blocking.tile_columns):
            left = w * window.strides[1] - window.padding[1]
            if (min(columns, left + blocking.copy_columns) - max(left, 0)) * channels < VECTOR:
                return False
    return True


def taps_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    source, output = operator.inputs[0], operator.output
    finish, packed_rows = rescale(operator), rows_at_once(operator, target, StoredRows())
    rows = min(rows_at_once(operator, target, stored), packed_rows)
    blocking = LaneBlocking.of(operator, rows, packed_rows)
    strips = output.shape[0] * -(-output.shape[1] // blocking.rows)
    tiles = -(-output.shape[2] // blocking.tile_columns)
    copied = strips * blocking.planes * blocking.copy_columns * tiles * source.shape[3] * WORD
    return Parts(
        parameters=PARAMETERS,
        constants=(
            ("weights", pack(operator, blocking)),
            ("factors", finish.table(start(operator), np.arange(1)).reshape(-1, 3)),
        ),
        members=_members(operator, blocking),
        functions=(_interleave(operator),),
        leading=("$_interleave",),
        scratch_bytes=blocking.scratch_bytes,
        instructions=_instructions(operator, blocking, strips, tiles, finish.instructions),
        passes=Passes(
            constants=strips * tiles,
            input=max(1.0, copied / source.num_elements),
            scratch=(copied + output.num_elements * blocking.vectors * VECTOR / blocking.rows) / blocking.scratch_bytes,
        ),
        rows_still_read=blocking.rows - 1,  # two rows are written together
    )


def rows_at_once(operator: QConv2d, target: Target, stored: StoredRows) -> int:
    """Return two output rows if both windows take as many planes as one, rows are close and memory suffices, else one.

    It is one if the target requests that block. While the second row is written, the first one's input is still read,
    so less of a dying input is free.
    """
    output, window = operator.output, operator.window
    pitch = stored.pitch or output.shape[3]
    kept = 2 if stored.output is None else stored.output.stored
    near = kept * output.shape[2] * pitch < MOST_PLACE
    both = (
        not target.least_scratch
        and window.dilation[0] == 1
        and -(-_window_rows(operator, 2) // WORD) == -(-window.kernel[0] // WORD)
    )
    several = output.shape[1] > 1 and stored.at_once != 1 and target.block != (1,)
    return 2 if near and both and several else 1


def pack(operator: QConv2d, blocking: LaneBlocking) -> Array:
    """Pack int8: for each number of rows, the tap (or the zero after them) of each lane; then the taps and a zero.

    The last table is for one row.
    """
    channels, (rows, columns) = operator.weight.shape[0], operator.window.kernel
    taps = np.pad(operator.weight.reshape(channels, -1), ((0, 0), (0, 1)))
    tables = [_places(operator, blocking, (0, operator.window.strides[0]))] if blocking.packed_rows > 1 else []
    tables.append(_places(operator, blocking, (0,) * blocking.packed_rows))
    assert all(table.max() <= rows * columns for table in tables), "a tap, or the zero"
    return np.concatenate([*(table.astype(np.uint8).view(np.int8) for table in tables), taps.ravel()])


def _places(operator: QConv2d, blocking: LaneBlocking, tops: tuple[int, ...]) -> Array:
    """Return int[vectors * rows * 16]: index of the tap in each lane, of windows that begin `tops` rows lower."""
    rows, columns = operator.window.kernel
    shape = (blocking.vectors, len(tops), WORD, WORD)
    vector, index, word, byte = np.indices(shape)
    row = word % blocking.planes * WORD + byte - np.array(tops)[index]
    column = (vector * WORD + word) // blocking.planes
    inside = (row >= 0) & (row < rows) & (column < columns)
    return np.where(inside, row * columns + column, rows * columns).ravel()


def _instructions(operator: QConv2d, blocking: LaneBlocking, strips: int, tiles: int, finish: int) -> int:
    """Return the modelled instructions: copies, the start of a channel, and its blocks of four columns."""
    channels, columns = operator.output.shape[3], operator.output.shape[2]
    chunks = (
        blocking.copy_columns * -(-channels // VECTOR)
        if channels >= VECTOR
        else -(-blocking.copy_columns * channels // VECTOR)
    )
    copy = blocking.planes * (chunks * (17 if flip(operator.inputs[0]) else 13) + 90 * -(-channels // VECTOR))
    begin = 25 + (7 * blocking.vectors * blocking.rows if blocking.vectors > 1 else 0)
    block = blocking.vectors * (WORD + WORD * blocking.rows) + blocking.rows * (3 + finish) + 6
    block += blocking.vectors * blocking.rows + 4 if blocking.vectors > 1 else 0
    blocks = -(-columns // COLUMNS)
    return 60 + strips * (60 + tiles * (copy + channels * begin) + channels * blocks * block)


def _members(operator: QConv2d, blocking: LaneBlocking) -> dict[str, Value]:
    return {
        "rows": blocking.rows, "packed_rows": blocking.packed_rows, "planes": blocking.planes,
        "vectors": blocking.vectors, "group": blocking.group,
        "tile_columns": blocking.tile_columns, "copy_columns": blocking.copy_columns,
        "rescale": rescale(operator).members(),
    }  # fmt: skip


def _interleave(operator: QConv2d) -> str:
    """Return `$_interleave`, a tvm_ext_helium_interleaved."""
    parameters = ["uint8_t *target", "const uint8_t *const *rows", "const int32_t *steps", "int32_t count"]
    turned = "true" if flip(operator.inputs[0]) else "false"
    return apart("$_interleave", parameters, [f"tvm_ext_interleave(target, rows, steps, count, {turned});"])


def single_rows(operator: QConv2d, target: Target) -> tuple[Block, ...]:
    """Return the only other block that tuning may measure: one row at a time."""
    return ((1,),)


TAPS = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=taps_parts)
KERNEL = TAPS.kernel(
    Family(
        name="qdepthwise_taps_helium",
        title="Quantized depthwise convolution, four columns of one or two output rows at a time",
        operator=QConv2d,
        constraints=(
            is_depthwise, *qconv2d.CONSTRAINTS, sums_leave_room, few_rows, many_columns, near_columns,
            long_runs,
        ),
        blocks=single_rows,
    )
)  # fmt: skip
