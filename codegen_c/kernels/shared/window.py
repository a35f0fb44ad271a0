"""C text and numpy shared by kernels that slide a window over rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import Kept, Parameter, Spatial, StoredRows
from codegen_c.operators.kinds import TensorType, Window
from tvm_ext.core.row_access import RowAccess

Bound = int | str
"""A bound of a range: a number, or the name of a variable."""
ROW_PARAMETERS = (
    Parameter(name="row_begin", ctype="int32_t", role="row"),
    Parameter(name="row_end", ctype="int32_t", role="row"),
)


def slot(row: str, kept: Kept | None) -> str:
    """Return the stored position of a row: itself if all rows are stored, else its slot in the ring buffer."""
    if kept is None:
        return row
    return f"(({row}{f' + {kept.shift_text}' if kept.shift_text else ''}) % {kept.stored_text})"


def row_elements(stored: StoredRows, output: TensorType) -> int:
    """Return the elements from one row of an output [N, H, W, C] to the next."""
    return stored.row_pitch or output.shape[2] * (stored.pitch or output.shape[3])


def offset(terms: dict[str, int]) -> str:
    """Return the sum of index * stride, without factors of one and indices of zero extent: `h * 40 + c`."""
    parts = [index if stride == 1 else f"{index} * {stride}" for index, stride in terms.items() if stride]
    return " + ".join(parts) or "0"


def strided(strides: Mapping[str, int], origin: int = 0) -> tuple[list[str], str]:
    """Return definitions `<index>_stride`, and the sum of each index times its stride: `h * h_stride + w`."""
    named = {index: stride for index, stride in strides.items() if stride != 1}
    terms = [f"{index} * {index}_stride" if index in named else index for index in strides]
    definitions = [f"const int32_t {index}_stride = {stride};" for index, stride in named.items()]
    if origin:
        definitions.append(f"const int32_t first = {origin};")
        terms.insert(0, "first")
    return definitions, " + ".join(terms) or "0"


def clip(axis: int, window: Window, extent: int, position: str, *, names: tuple[str, str, str]) -> list[str]:
    """Return declarations of the first input index of a window, and of the range of taps inside the input.

    names: (first, begin, end), e.g. ("top", "r_begin", "r_end"). Bounds that padding cannot change are plain numbers.
    """
    first, begin, end = names
    kernel, stride, dilation = window.kernel[axis], window.strides[axis], window.dilation[axis]
    pad_before, pad_after = window.padding[axis], window.padding[axis + 2]
    scaled = position if stride == 1 else f"{position} * {stride}"
    lines = [f"const int32_t {first} = {scaled}{f' - {pad_before}' if pad_before else ''};"]
    if pad_before:
        lines.append(f"const int32_t {begin} = {first} < 0 ? {_ceil_div(f'-{first}', dilation)} : 0;")
    if pad_after:
        taps = _ceil_div(f"({extent} - {first})", dilation)
        reach = (kernel - 1) * dilation
        lines.append(f"const int32_t {end} = {first} + {reach} >= {extent} ? {taps} : {kernel};")
    return lines


def tap_range(axis: int, window: Window, names: tuple[str, str]) -> tuple[Bound, Bound]:
    """Return the names that `clip` declared, or the plain bounds if it declared none."""
    return names[0] if window.padding[axis] else 0, names[1] if window.padding[axis + 2] else window.kernel[axis]


def taps_inside(window: Window, axis: int, extent: int, outputs: int) -> np.ndarray:
    """Return the taps that lie inside the input along one axis, int64[outputs]. extent: of the input."""
    first = np.arange(outputs) * window.strides[axis] - window.padding[axis]
    positions = first[:, np.newaxis] + np.arange(window.kernel[axis]) * window.dilation[axis]
    return ((positions >= 0) & (positions < extent)).sum(axis=1)


def num_taps(begin: Bound, end: Bound) -> Bound:
    """Return the length of a range of taps."""
    if isinstance(begin, int) and isinstance(end, int):
        return end - begin
    return f"({end} - {begin})" if begin else end


def _ceil_div(expression: str, divisor: int) -> str:
    return expression if divisor == 1 else f"({expression} + {divisor - 1}) / {divisor}"


def rows_of_calls(rows: int, stored: StoredRows) -> Set[int] | None:
    """Return the numbers of rows that calls compute; None if they are not decided."""
    if stored.call_rows:
        return stored.call_rows
    if stored.at_once:
        return {min(stored.at_once, rows), rows % stored.at_once} - {0}
    return None if stored.output or any(stored.inputs) else {rows}


def spatial(
    window: Window, source: TensorType, output: TensorType, num_same_row: int = 0, *, columns_at_once: int = 0
) -> Spatial:
    """Return the row behaviour of a window over NHWC images; further inputs are read row by row."""
    rows = output.shape[1]
    accesses = (sliding(window, source.shape[1], rows), *(RowAccess.same(rows),) * num_same_row)
    return Spatial(output_rows=rows, inputs=accesses, window=window, columns_at_once=columns_at_once)


def row_by_row(rows: int, num_inputs: int = 1) -> Spatial:
    """Return the row behaviour of a kernel that computes each row from the same row of every input."""
    return Spatial(output_rows=rows, inputs=(RowAccess.same(rows),) * num_inputs)


def sliding(window: Window, input_rows: int, output_rows: int) -> RowAccess:
    """Return the rows that a window reads."""
    return RowAccess.sliding(
        input_rows, output_rows, taps=window.kernel[0], stride=window.strides[0], dilation=window.dilation[0],
        padding=window.padding[0],
    )  # fmt: skip


def accumulated(rows: int) -> Spatial:
    """Return the row behaviour of a kernel that accumulates its only input, which comes in this number of rows."""
    return Spatial(output_rows=rows, inputs=(RowAccess.same(rows),), accumulates=True)


def taps(
    array: np.ndarray, window: Window, output: tuple[int, int], fill: float
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield the taps (r, s) of the window, each with the NHWC slice it reads for all outputs, padding as `fill`."""
    top, left, bottom, right = window.padding
    height = max((output[0] - 1) * window.strides[0] + (window.kernel[0] - 1) * window.dilation[0] + 1 - top, 0)
    width = max((output[1] - 1) * window.strides[1] + (window.kernel[1] - 1) * window.dilation[1] + 1 - left, 0)
    grow = ((0, 0), (top, max(bottom, height - array.shape[1])), (left, max(right, width - array.shape[2])), (0, 0))
    padded = np.pad(array, grow, constant_values=fill)
    for r in range(window.kernel[0]):
        for s in range(window.kernel[1]):
            y, x = r * window.dilation[0], s * window.dilation[1]
            rows = slice(y, y + (output[0] - 1) * window.strides[0] + 1, window.strides[0])
            columns = slice(x, x + (output[1] - 1) * window.strides[1] + 1, window.strides[1])
            yield r, s, padded[:, rows, columns, :]


def over(
    name: str, begin: Bound, end: Bound, lines: Sequence[str], *, step: int = 1, between: Sequence[str] = ()
) -> list[str]:
    """Return a loop over taps, pixels or blocks of channels; for one iteration it is a definition of the index.

    between: statements that the next iteration needs after each iteration.
    """
    if isinstance(begin, int) and isinstance(end, int) and begin < end <= begin + step:
        return [f"const int32_t {name} = {begin};", *lines]
    advance = f"++{name}" if step == 1 else f"{name} += {step}"
    return [f"for (int32_t {name} = {begin}; {name} < {end}; {advance}) {{", block([*lines, *between]), "}"]


def over_pixels(rows: list[str], pixel: list[str], output: tuple[int, ...]) -> str:
    """Return loops over images, rows [row_begin, row_end) and columns around the text of one output pixel."""
    columns = over("w", 0, output[2], pixel)
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block([*rows, *columns]), "}"]
    if output[0] > 1:
        lines = [f"for (int32_t n = 0; n < {output[0]}; ++n) {{", block(lines), "}"]
    return "\n".join(lines)


CHANNEL_BLOCK = 4
"""Output channels that portable integer kernels compute together."""


def pack_blocks(weight: np.ndarray, width: int) -> np.ndarray:
    """Pack [K, ...] as blocks of `width` output channels, [K / width][...][width], the rest as a last block."""
    full = weight.shape[0] // width * width
    head = np.moveaxis(weight[:full].reshape(-1, width, *weight.shape[1:]), 1, -1)
    return np.concatenate([head.ravel(), np.moveaxis(weight[full:], 0, -1).ravel()])
