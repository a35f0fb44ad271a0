"""Modelled instructions of float kernels that slide a window over an image: windows cost what of them lies inside.

Pixels whose windows reach outside are computed one by one, over the rows and columns inside; a row of groups of pixels
reads all columns, and the rows inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codegen_c.kernels.shared.window import taps_inside
from codegen_c.operators.kinds import Conv2d, Pool2d, Window

CALL_INSTRUCTIONS = 30
"""A call saves and restores registers, reads its arguments and names its constants (Cortex-M4, GCC 12)."""
ROW_INSTRUCTIONS = 16
"""A row of the output: addresses of it and of the input, from there on carried along."""


@dataclass(frozen=True, kw_only=True)
class WindowCost:
    """Modelled instructions of a group of pixels, all their channels.

    whole: once. row: each row of the window inside the input, of a group all its columns with it. tap: each column of
    such a row inside, of a pixel alone.
    """

    whole: int
    row: int
    tap: int = 0

    def of_taps(self, rows: int, taps: int) -> int:
        """Instructions of one group whose windows have so many rows, and so many taps in all, inside the input."""
        return self.whole + rows * self.row + taps * self.tap


def best_pixels(inner: int, most: int, window: Window, cost: Callable[[int], WindowCost]) -> int:
    """Pixels to compute at once so that a row's inner columns cost least; cost(p): of a group of p pixels."""
    rows, taps = window.kernel[0], window.kernel[0] * window.kernel[1]

    def of(pixels: int) -> int:
        return cost(pixels).of_taps(rows, taps)

    return min(range(1, max(1, min(inner, most)) + 1), key=lambda p: inner // p * of(p) + inner % p * of(1))


def image_instructions(
    operator: Conv2d | Pool2d, groups: int, begin: int, pixels: int, cost: Callable[[int], WindowCost]
) -> int:
    """Instructions of all images: in each row `groups` groups of pixels from column `begin` on, the others alone."""
    window, (images, rows, columns, _) = operator.window, operator.output.shape
    rows_inside = int(taps_inside(window, 0, operator.inputs[0].shape[1], rows).sum())
    columns_inside = taps_inside(window, 1, operator.inputs[0].shape[2], columns)
    alone = [*columns_inside[:begin], *columns_inside[begin + groups * pixels :]]
    group, one = cost(pixels), cost(1)
    image = groups * (rows * group.whole + rows_inside * group.row)
    image += len(alone) * (rows * one.whole + rows_inside * one.row) + int(sum(alone)) * rows_inside * one.tap
    return CALL_INSTRUCTIONS + images * (image + rows * ROW_INSTRUCTIONS)
