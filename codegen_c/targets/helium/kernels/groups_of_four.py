"""Groups of four output pixels, which qconv2d_side_helium.py computes at once: their windows, and their number.

Windows are read in place, copied one by one, or read from a copied strip; pixels that groups leave are by themselves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.shared.window import rows_of_calls
from codegen_c.operators.kinds import QConv2d, Window
from codegen_c.targets.helium.kernels.four_pixels import PIXELS, STEP, Columns
from codegen_c.targets.helium.kernels.helium import flip
from codegen_c.targets.helium.kernels.product_helium import padded
from codegen_c.targets.helium.kernels.qconv2d_helium import num_whole_rows


def is_pixel(operator: QConv2d) -> bool:
    """True of 1x1 windows, which are read in place."""
    return operator.window.is_pointwise


def columns_of(operator: QConv2d) -> Columns:
    """Windows as they are read: pixels, rows of columns, or copies one by one."""
    rows, taps, depth = operator.weight.shape[1:]
    if is_pixel(operator):
        return Columns(runs=1, taps=1, stride=1, column_bytes=depth, steps=padded(depth) // STEP)
    strip = Columns(runs=rows, taps=taps, stride=operator.window.strides[1], column_bytes=depth, steps=depth // STEP)
    if is_strip(operator) and strip.fits():
        return strip
    num_bytes = padded(rows * taps * depth)
    return Columns(runs=1, taps=1, stride=1, column_bytes=num_bytes, steps=num_bytes // STEP)


def is_strip(operator: QConv2d) -> bool:
    """True where columns of windows can be read as they lie in the input."""
    adjacent = operator.weight.shape[2] == 1 or operator.window.dilation[1] == 1
    return adjacent and operator.weight.shape[3] % STEP == 0 and flip(operator.inputs[0]) == 0


def takes_place_of_input(operator: QConv2d, stored: StoredRows) -> bool:
    """True where the output may take the input's place, pixel for pixel."""
    is_whole = stored.output is None and not any(stored.inputs) and stored.at_once is None
    same = operator.inputs[0].shape == operator.output.shape
    return is_pixel(operator) and is_whole and same and spans_rows(operator, stored)


def is_copied(operator: QConv2d) -> bool:
    """True where windows are copied one by one."""
    return not is_pixel(operator) and columns_of(operator).is_pixel


def is_short(operator: QConv2d) -> bool:
    """True where a row of a window is a vector or less, as copied."""
    _, taps, depth = operator.weight.shape[1:]
    return operator.window.dilation[1] == 1 and taps * depth <= STEP


def inside_columns(operator: QConv2d) -> tuple[int, int]:
    """Output columns whose windows lie in columns of the input, and are read or copied a row at once."""
    if is_copied(operator) and not is_short(operator):
        return 0, 0
    return inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])


def spans_rows(operator: QConv2d, stored: StoredRows) -> bool:
    """True where a group of four pixels may lie in two rows, or windows are copied, which costs more row by row."""
    in_rows = is_pixel(operator) and operator.output.shape[2] % PIXELS == 0
    return is_one_run(operator, stored) and not in_rows


def is_one_run(operator: QConv2d, stored: StoredRows) -> bool:
    """True where groups of four pixels go on from row to row."""
    is_stored = stored.output is None and (stored.input(0) is None or not is_pixel(operator))
    return columns_of(operator).is_pixel and operator.output.shape[0] == 1 and is_stored


def _runs(operator: QConv2d, stored: StoredRows) -> tuple[int, int]:
    """Runs of pixels, and the pixels of each."""
    images, rows, columns, _ = operator.output.shape
    return (1, rows * columns) if is_one_run(operator, stored) else (images * rows, columns)


def num_groups(operator: QConv2d, stored: StoredRows) -> int:
    """Groups of four pixels."""
    runs, pixels = _runs(operator, stored)
    return runs * (pixels // PIXELS if num_ones(operator, stored) else -(-pixels // PIXELS))


def num_ones(operator: QConv2d, stored: StoredRows) -> int:
    """Pixels by themselves: one that is left of a run, or all of a run that is too short."""
    runs, pixels = _runs(operator, stored)
    return runs * (pixels % PIXELS) if is_pixel(operator) and _leaves_ones(pixels) else 0


def has_ones(operator: QConv2d, stored: StoredRows) -> bool:
    """True where the run of a call has pixels by themselves."""
    _, rows, columns, _ = operator.output.shape
    calls = rows_of_calls(rows, stored) if is_one_run(operator, stored) else {1}
    if calls is None:
        return is_pixel(operator) and columns % PIXELS != 0
    return is_pixel(operator) and any(_leaves_ones(count * columns) for count in calls)


def _leaves_ones(pixels: int) -> bool:
    """True where groups of four pixels leave one of a run, or the run is too short for a group."""
    return pixels < PIXELS or pixels % PIXELS == 1


def num_inside(operator: QConv2d, stored: StoredRows) -> int:
    """Groups that are read in place; of windows that are copied one by one, pixels whose windows lie in the input."""
    if is_pixel(operator):
        return num_groups(operator, stored)
    (begin, end), columns = inside_columns(operator), operator.output.shape[2]
    if is_copied(operator):
        return num_whole_rows(operator, stored) * (end - begin)
    first = np.minimum(np.arange(0, columns, PIXELS), columns - PIXELS)
    return num_whole_rows(operator, stored) * int(((first >= begin) & (first + PIXELS <= end)).sum())


def has_outside(operator: QConv2d, stored: StoredRows) -> bool:
    """True where some windows do not lie in the input, one row behind the other in memory."""
    num_all = operator.output.num_elements // operator.output.shape[3]
    return num_inside(operator, stored) < (num_all if is_copied(operator) else num_groups(operator, stored))


def strip_window(operator: QConv2d) -> Window:
    """The window of four pixels."""
    window = operator.window
    return replace(window, kernel=(window.kernel[0], window.kernel[1] + (PIXELS - 1) * window.strides[1]))
