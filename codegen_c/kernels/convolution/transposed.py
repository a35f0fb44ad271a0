"""Shared parts of transposed convolutions: the taps that an output element adds up, in C and in numpy.

Input element i spreads over output elements i * stride + r - padding, so output element h adds up the taps r with
(h + padding - r) a multiple of the stride.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import Spatial
from codegen_c.operators.kinds import Conv2dTranspose, QConv2dTranspose, TensorType, Window
from tvm_ext.core.row_access import RowAccess

Array = np.ndarray


def spread(
    inputs: Array, window: Window, output: tuple[int, ...]
) -> Iterator[tuple[int, int, tuple[slice, ...], Array]]:
    """Taps (r, s), each with the part of an NHWC output that its products go to, and their input elements."""
    for r in range(window.kernel[0]):
        rows = _places(r - window.padding[0], window.strides[0], inputs.shape[1], output[0])
        for s in range(window.kernel[1]):
            columns = _places(s - window.padding[1], window.strides[1], inputs.shape[2], output[1])
            yield r, s, (slice(None), rows[0], columns[0]), inputs[:, rows[1], columns[1]]


def _places(first: int, stride: int, extent: int, limit: int) -> tuple[slice, slice]:
    """Slices of the output and of `extent` input elements, which go to first, first + stride ...: those inside."""
    begin = max(0, -(first // stride))
    end = max(begin, min(extent, -(-(limit - first) // stride)))
    start = first + begin * stride
    return slice(start, start + (end - begin) * stride, stride), slice(begin, end)


def rows_of(operator: Conv2dTranspose | QConv2dTranspose, num_same_row: int = 0) -> Spatial:
    """Row behaviour; further inputs are read row by row. A row that no window reaches is taken to read the next one."""
    window, height, rows = operator.window, operator.inputs[0].shape[1], operator.output.shape[1]
    places = np.arange(rows) + window.padding[0]
    first = np.clip(-((window.kernel[0] - 1 - places) // window.strides[0]), 0, height - 1)
    end = np.maximum(np.minimum(height, places // window.strides[0] + 1), first + 1)
    access = RowAccess(input_rows=height, begins=tuple(first.tolist()), ends=tuple(end.tolist()))
    return Spatial(output_rows=rows, inputs=(access, *(RowAccess.same(rows),) * num_same_row))


def over_taps(window: Window, source: TensorType, body: list[str]) -> list[str]:
    """Loops over the taps (r, s) of output element (h, w), with the input element (i, j) that each belongs to."""
    lines = body
    for tap, place, index, axis in (("s", "w", "j", 1), ("r", "h", "i", 0)):
        stride, padding, extent = window.strides[axis], window.padding[axis], source.shape[1 + axis]
        position = f"{place} + {padding}" if padding else place
        behind = f"({position} - {tap})"
        first = "0" if stride == 1 else f"({position}) % {stride}"
        lines = [
            f"for (int32_t {tap} = {first}; {tap} < {window.kernel[axis]}; {tap} += {stride}) {{",
            block(
                [
                    f"const int32_t {index} = {behind}{f' / {stride}' if stride > 1 else ''};",
                    f"if ({index} < 0 || {index} >= {extent}) {{",
                    block("continue;"),
                    "}",
                    *lines,
                ]
            ),
            "}",
        ]
    return lines
