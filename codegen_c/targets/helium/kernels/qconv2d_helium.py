"""conv2d of a QDQ chain with Helium: two output pixels by four channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Where a row of the
window is a whole number of vectors, pixels whose window lies inside the input are read in place; windows of all
other pixels are copied to scratch first, padding filled in with the zero point. Rounding "onnx".
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, plus, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.shared.window import ROW_PARAMETERS, over, slot, spatial
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.helium.kernels.helium import (
    PRODUCT_INCLUDES,
    OutputRange,
    Rescale,
    flip,
    signed_zero_point,
)
from codegen_c.targets.helium.kernels.im2col_helium import Im2col
from codegen_c.targets.helium.kernels.product_helium import CHANNEL_BLOCK, PARAMETERS, SCRATCH, STEP, Product, padded


def has_no_groups(operator: QConv2d, target: Target) -> bool:
    """the convolution must not have groups"""
    return operator.groups == 1


def sums_leave_room(operator: QConv2d, target: Target) -> bool:
    """where a channel's factor is one quarter or more, its sums must be small enough to be scaled up"""
    return rescale(operator).fits(*qconv2d.products(operator).range())


def rescale(operator: QConv2d) -> Rescale:
    return Rescale.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


def start(operator: QConv2d) -> Array:
    """int64[K]: bias less the zero point times all weights, as padding is read like the input."""
    taps = operator.weight.reshape(operator.weight.shape[0], -1).astype(np.int64)
    return operator.bias.astype(np.int64) - signed_zero_point(operator.inputs[0]) * taps.sum(axis=1)


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    kernel_rows, _, depth = operator.weight.shape[1:]
    runs = kernel_rows if _reads_in_place(operator) else 1
    product = Product.of(
        runs=runs, run_bytes=operator.weight[0].size // runs, channels=output.shape[3], rescale=rescale(operator),
        limits=OutputRange(output=output, low=operator.low, high=operator.high), target=target,
    )  # fmt: skip
    patch = Im2col(window=operator.window, source=source, depth=depth)
    num_pixels = output.num_elements // output.shape[3]
    copied = num_pixels - _num_in_place(operator, stored)
    copies = copied > 0
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *PARAMETERS,
                *((SCRATCH,) if copies else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, patch if copies else None),
            helpers="\n".join([product.function(2), *([patch.function(stored)] if copies else [])]),
            includes=PRODUCT_INCLUDES,
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=product.constants(operator.weight, start(operator)),
        scratch_bytes=2 * padded(patch.num_bytes) if copies else 0,
        macs=output.num_elements * operator.weight[0].size,
        instructions=-(-num_pixels // 2) * (product.instructions(2) + 16) + copied * (patch.instructions + 10),
        passes=passes(operator, copied),
        accumulation="products with r, s, c ascending in vectors of 16, then bias",
        spatial=spatial(operator.window, source, output),
        exact=True,
        pitched=True,
    )


def passes(operator: QConv2d, copied: int) -> Passes:
    """Two pixels by four channels; `copied` pixels are copied first and read from the copy."""
    channels = operator.output.shape[3]
    num_pixels, taps = operator.output.num_elements // channels, operator.weight[0].size
    blocks = -(-channels // CHANNEL_BLOCK)
    reads = taps * ((num_pixels - copied) * blocks + copied)
    return Passes(
        constants=max(1.0, num_pixels / 2),
        input=max(1.0, reads / operator.inputs[0].num_elements),
        scratch=copied / 2 * (1 + blocks),
    )


def _reads_in_place(operator: QConv2d) -> bool:
    """True where a window inside the input can be read in place: its rows are whole vectors of int8."""
    kernel_columns, depth = operator.weight.shape[2:]
    adjacent = kernel_columns == 1 or operator.window.dilation[1] == 1
    return adjacent and kernel_columns * depth % STEP == 0 and flip(operator.inputs[0]) == 0


def _inside(operator: QConv2d) -> tuple[int, int]:
    """Output columns that are read in place, where the rows of the window lie inside the input: pairs only."""
    if not _reads_in_place(operator):
        return 0, 0
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])
    return begin, begin + (end - begin) // 2 * 2


def _num_in_place(operator: QConv2d, stored: StoredRows) -> int:
    """Output pixels that are read in place."""
    begin, end = _inside(operator)
    window, height = operator.window, operator.inputs[0].shape[1]
    reach = (window.kernel[0] - 1) * window.dilation[0]
    tops = np.arange(operator.output.shape[1]) * window.strides[0] - window.padding[0]
    whole = (tops >= 0) & (tops + reach < height)
    kept = stored.input(0)
    if kept is not None:
        whole &= (tops + kept.shift) % kept.stored + reach < kept.stored
    return int(whole.sum()) * (end - begin) * operator.output.shape[0]


def _body(operator: QConv2d, stored: StoredRows, patch: Im2col | None) -> str:
    """Pairs of pixels: row by row, or on from row to row where nothing is read in place."""
    batch, height, columns, depth = operator.inputs[0].shape
    output, (begin, end) = operator.output.shape, _inside(operator)
    image = "input" if batch == 1 else "image"
    if patch and begin == end and batch == 1 and stored.output is None:
        lines = _flat(operator, stored, patch)
    else:
        row = slot("h", stored.output) if batch == 1 else f"n * {output[1]} + h"
        place = times(f"({row})", output[2] * _pitch(operator, stored))
        lines = [f"{C_TYPES[operator.output.dtype]} *row = &output[{place}];"]
        lines += _in_place(operator, stored, image, (begin, end), always=patch is None) if end > begin else []
        lines += _others(operator, stored, image, patch, begin, "done" if end > begin else "") if patch else []
        lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    lines = ["int8_t *patches = (int8_t *)scratch;", *lines] if patch else lines
    if batch > 1:
        place = f"const {C_TYPES[operator.inputs[0].dtype]} *image = &input[n * {height * columns * depth}];"
        lines = [f"for (int32_t n = 0; n < {batch}; ++n) {{", block([place, *lines]), "}"]
    return "\n".join(lines)


def _pitch(operator: QConv2d, stored: StoredRows) -> int:
    """Elements from one output pixel to the next."""
    return stored.pitch or operator.output.shape[3]


def _flat(operator: QConv2d, stored: StoredRows, patch: Im2col) -> list[str]:
    """All pixels from copies; the last one may be a pair with itself."""
    columns, pitch = operator.output.shape[2], _pitch(operator, stored)
    second = f"&patches[{padded(patch.num_bytes)}]"
    pair = [
        "const int32_t next = m + 1 < end ? m + 1 : m;",
        f"$_patch(patches, input, {_row_and_column('m', columns)});",
        f"$_patch({second}, input, {_row_and_column('next', columns)});",
        f"{C_TYPES[operator.output.dtype]} *y = &output[{times('m', pitch)}];",
        f"$_two(patches, {second}, 0, y, &output[{times('next', pitch)}], weights, factors);",
    ]
    return [
        f"const int32_t end = {times('row_end', columns)};",
        f"for (int32_t m = {times('row_begin', columns)}; m < end; m += 2) {{",
        block(pair),
        "}",
    ]


def _row_and_column(pixel: str, columns: int) -> str:
    return f"{pixel} / {columns}, {pixel} % {columns}" if columns > 1 else f"{pixel}, 0"


def _others(operator: QConv2d, stored: StoredRows, image: str, patch: Im2col, begin: int, done: str) -> list[str]:
    """Columns of a row that are left, from copies: those before `begin`, and those behind the `done` ones."""
    columns = operator.output.shape[2]

    def column(i: str) -> str:
        behind = f"{done} + {i}" if done else i
        return f"({i} < {begin} ? {i} : {behind})" if begin and done else behind

    second, count = f"&patches[{padded(patch.num_bytes)}]", f"{columns} - {done}" if done else columns
    places = [f"&row[{times(w, _pitch(operator, stored))}]" for w in ("w0", "w1")]
    pair = [
        f"const int32_t w0 = {column('i')};",
        f"const int32_t w1 = i + 1 < {count} ? {column('i + 1')} : w0;",
        f"$_patch(patches, {image}, h, w0);",
        f"$_patch({second}, {image}, h, w1);",
        f"$_two(patches, {second}, 0, {', '.join(places)}, weights, factors);",
    ]
    return over("i", 0, count, pair, step=2)


def _in_place(operator: QConv2d, stored: StoredRows, image: str, span: tuple[int, int], *, always: bool) -> list[str]:
    """Pairs of a span of columns, unless a row of the window is missing. `done`: columns that are finished.

    always: no row ever is, and the span is all columns.
    """
    begin, end = span
    (_, height, columns, depth), window = operator.inputs[0].shape, operator.window
    apart = _pitch(operator, stored)
    reach, kept = (window.kernel[0] - 1) * window.dilation[0], stored.input(0)
    top = f"{times('h', window.strides[0])}{f' - {window.padding[0]}' if window.padding[0] else ''}"
    conditions = ["top >= 0"] if window.padding[0] else []
    conditions += [f"top + {reach} < {height}"] if window.padding[2] else []
    conditions += [f"{slot('top', kept)} + {reach} < {kept.stored_text}"] if kept is not None and reach else []
    pitch = window.dilation[0] * columns * depth
    left = begin * window.strides[1] - window.padding[1]
    step = window.strides[1] * depth
    first = plus(times(f"({slot('top', kept)})", columns), left)
    pair = [
        f"{C_TYPES[operator.output.dtype]} *y = &row[{times('w', apart)}];",
        f"$_two(x, x + {step}, {pitch - window.kernel[1] * depth}, y, y + {apart}, weights, factors);",
    ]
    pairs = [
        f"const int8_t *x = &{image}[{times(first, depth)}];",
        *over("w", begin, end, pair, step=2, between=[f"x += {2 * step};"]),
    ]
    if always:
        return [f"const int32_t top = {top};", *pairs]
    if not conditions:
        return [f"const int32_t top = {top};", f"const int32_t done = {end - begin};", *pairs]
    return [
        f"const int32_t top = {top};",
        "int32_t done = 0;",
        f"if ({' && '.join(conditions)}) {{",
        block([*pairs, f"done = {end - begin};"]),
        "}",
    ]


KERNEL = Kernel(
    name="qconv2d_helium",
    operator=QConv2d,
    implement=implement,
    constraints=(has_no_groups, *qconv2d.CONSTRAINTS, sums_leave_room),
)
