"""Modelled instructions of pooling by Helium: taps inside of the image, their rows, blocks of channels, and pixels."""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.kernels.shared.copies import SHORTEST_LOOP
from codegen_c.kernels.shared.window import taps_inside
from codegen_c.operators.kinds import QPool2d

VECTOR = 16
"""Channels of a block."""


@dataclass(frozen=True, kw_only=True)
class PoolCost:
    """Instructions by what is counted, fitted to those executed on a Cortex-M55 in QEMU.

    several: of a pixel of more than one block. part, part_row: more of a block that has not all channels, and of its
    rows of taps. tap, looped_tap: of a window that is written out, or not. many: taps from which on each takes `far`
    more, as instructions reach few places.
    """

    call: float
    pixel: float
    several: float
    block: float
    part: float
    row: float
    part_row: float
    tap: float
    looped_tap: float
    many: int
    far: float


INSIDE = {
    "max": PoolCost(call=12, pixel=0, several=2.8, block=0, part=1.8, row=1, part_row=0.7, tap=4, looped_tap=3.1,
                    many=17, far=0.8),
    "average": PoolCost(call=30, pixel=4.7, several=41.7, block=21.8, part=5.8, row=2.6, part_row=0, tap=6.4,
                        looped_tap=6.4, many=10, far=2.7),
}  # fmt: skip
"""Windows that lie inside of the image: their taps are known."""
ACROSS = {
    "max": PoolCost(call=12, pixel=26, several=12, block=0, part=0, row=3, part_row=6, tap=5.9, looped_tap=5.9,
                    many=0, far=0),
    "average": PoolCost(call=12, pixel=38.7, several=7.2, block=25.3, part=3, row=3.5, part_row=6.5, tap=9.9,
                        looped_tap=9.9, many=0, far=0),
}  # fmt: skip
"""Windows across edges, whose taps are counted at each pixel."""


def pool_instructions(operator: QPool2d, rescaling: int) -> int:
    """Instructions of one call. rescaling: of four sums."""
    window, (_, height, width, channels) = operator.window, operator.inputs[0].shape
    images, rows, columns, _ = operator.output.shape
    cost = (ACROSS if any(window.padding) else INSIDE)[operator.method]
    is_written_out = max(window.kernel) <= SHORTEST_LOOP
    tap = cost.tap if is_written_out else cost.looped_tap
    if is_written_out and window.kernel[0] * window.kernel[1] >= cost.many:
        tap += cost.far
    turned = 1 if operator.inputs[0].dtype == "uint8" else 0  # into int8, and back
    blocks, is_part = -(-channels // VECTOR), channels % VECTOR > 0
    row_taps, column_taps = (
        int(taps_inside(window, axis, extent, outputs).sum())
        for axis, (extent, outputs) in enumerate(((height, rows), (width, columns)))
    )
    of_pixel = cost.pixel + (cost.several if blocks > 1 else 0)
    of_block = cost.block + 4 * rescaling + (cost.part if is_part else 0) + turned
    of_row = cost.row + (cost.part_row if is_part else 0)
    pixels, taps = rows * columns, row_taps * column_taps
    each = pixels * of_pixel + blocks * (pixels * of_block + row_taps * columns * of_row + taps * (tap + turned))
    return round(cost.call + images * each)
