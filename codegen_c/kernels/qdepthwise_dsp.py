"""Depthwise conv2d of a QDQ chain by the DSP extension: two output columns of one channel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. The input rows of a few
output rows are expanded, four channels at a time, to a plane of 16-bit numbers for each, padding as zero points;
then one instruction multiplies two adjacent columns by two taps. The zero point is in the bias. Rounding "onnx":
once, halves to even.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen_c.kernels import qconv2d, qdepthwise
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.product_dsp import INCLUDES, has_dsp, start, suffix
from codegen_c.kernels.requantize import quantization
from codegen_c.kernels.requantize_dsp import FastRequantize
from codegen_c.kernels.window import offset, slot, spatial
from codegen_c.operators import QConv2d
from codegen_c.text import C_TYPES, block, plus, times

PLANES = 4
COLUMNS = 2
STRIP_ROWS = 4
MOST_TAPS = 81


def is_dense_in_columns(operator: QConv2d, target: Target) -> bool:
    """taps of a row must be adjacent (no dilation of columns), and no more than 81 in a window"""
    return operator.window.dilation[1] == 1 and operator.weight[0].size <= MOST_TAPS


def has_four_channels(operator: QConv2d, target: Target) -> bool:
    """there must be at least 4 channels"""
    return operator.output.shape[3] >= PLANES


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Expanded input of one channel for a strip of output rows: `rows` by `words` pairs of columns."""

    strip: int
    rows: int
    words: int

    @classmethod
    def of(cls, operator: QConv2d) -> Plane:
        window, output = operator.window, operator.output.shape
        strip = min(STRIP_ROWS, output[1])
        rows = (strip - 1) * window.strides[0] + (window.kernel[0] - 1) * window.dilation[0] + 1
        return cls(strip=strip, rows=rows, words=((output[2] - 1) * window.strides[1] + window.kernel[1] + 1) // 2)


@dataclass(frozen=True, kw_only=True)
class RowTaps:
    """How a kernel row of S taps meets words of two columns.

    words: taps of each weight word, None for a zero. products[q]: what the sum of output column q adds, as
    (function, input word, weight word).
    """

    words: tuple[tuple[int, int | None], ...]
    products: tuple[tuple[tuple[str, int, int], ...], ...]

    @classmethod
    def of(cls, taps: int, stride: int, columns: int) -> RowTaps:
        """For `columns` output columns side by side, the first one's taps beginning with a word."""
        words: list[tuple[int, int | None]] = []
        for q in range(columns):
            odd = q * stride % 2
            words += [pair for s in range(odd, taps - 1, 2) if (pair := (s, s + 1)) not in words]
        products = []
        for q in range(columns):
            first = q * stride
            found: list[tuple[str, int, int]] = []
            s = 0
            while s < taps:
                position, high = divmod(first + s, 2)
                if not high and s + 1 < taps:
                    found.append(("smlad", position, words.index((s, s + 1))))
                    s += 2
                    continue
                if not any(s in pair for pair in words):
                    words.append((s, None))
                word = next(i for i, pair in enumerate(words) if s in pair)
                found.append((_half_product(bool(high), words[word].index(s) == 1), position, word))
                s += 1
            products.append(tuple(found))
        return cls(words=tuple(words), products=tuple(products))


def _half_product(high_input: bool, high_weight: bool) -> str:
    return f"{'high' if high_input else 'low'}_{'high' if high_weight else 'low'}"


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    finish = FastRequantize.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())
    window, plane = operator.window, Plane.of(operator)
    taps = RowTaps.of(window.kernel[1], window.strides[1], min(COLUMNS, operator.output.shape[2]))
    begin = start(operator.inputs[0], operator.weight, operator.bias)
    *shared, row_begin, row_end = qconv2d.parameters(operator, finish.exact)
    shared = [replace(p, ctype="uint32_t") if p.name == "weights" else p for p in shared]
    scratch = Parameter(name="scratch", ctype="uint8_t", role="scratch")
    helpers = (finish.helper(), _expand(operator, plane), _channel(operator, stored, finish, taps, plane))
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*shared, scratch, row_begin, row_end),
            body=_body(operator, stored, finish, taps, plane),
            helpers="\n".join(helpers),
            includes=(*INCLUDES, *finish.includes),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(
            ("weights", pack(operator.weight, taps)),
            ("bias", begin.astype(np.uint64).astype(np.uint32).view(np.int32)),
            *finish.constants(),
        ),
        scratch_bytes=4 * PLANES * plane.rows * plane.words,
        macs=operator.output.num_elements * operator.weight[0].size,
        instructions=_instructions(operator, finish, taps, plane),
        accumulation="exact",
        spatial=replace(spatial(operator.window, operator.inputs[0], operator.output), behind=plane.strip - 1),
        exact=True,
    )


def pack(weight: np.ndarray, taps: RowTaps) -> np.ndarray:
    """int8[C, R, S, 1] -> uint32[C, R, words], each word two taps of 16 bits, the first one low."""
    padded = np.concatenate([weight[..., 0], np.zeros((*weight.shape[:2], 1), np.int8)], axis=2)
    last = weight.shape[2]
    first = padded[:, :, [a for a, _ in taps.words]].astype(np.int16).view(np.uint16).astype(np.uint32)
    second = padded[:, :, [last if b is None else b for _, b in taps.words]].astype(np.int16)
    return np.ascontiguousarray(first | second.view(np.uint16).astype(np.uint32) << np.uint32(16))


def _instructions(operator: QConv2d, finish: FastRequantize, taps: RowTaps, plane: Plane) -> int:
    """Modelled: planes expanded, then products and results of two columns at a time."""
    batch, height, columns, channels = operator.output.shape
    kernel_rows = operator.window.kernel[0]
    strips = batch * -(-height // plane.strip)
    expand = -(-channels // PLANES) * plane.rows * (26 + 19 * plane.words)
    products = sum(len(found) for found in taps.products)
    words_read = len({word for found in taps.products for _, word, _ in found})
    pair = kernel_rows * (products + words_read) + COLUMNS * finish.instructions + 6
    rows = plane.strip * (14 + (columns + 1) // COLUMNS * pair)
    return strips * (expand + channels * (34 + len(taps.words) * kernel_rows + rows))


def _expand(operator: QConv2d, plane: Plane) -> str:
    """`$_expand(cell, row)`: one input row of four channels, to one row of each plane; padding where row is NULL."""
    source = operator.inputs[0]
    _, _, columns, channels = source.shape
    left, kind = operator.window.padding[1], suffix(source)
    inner_begin = min((left + 1) // 2, plane.words)
    inner_end = max(inner_begin, min((columns + left) // 2, plane.words))
    filler = f"0x{(quantization(source).zero_point & 0xFF) * 0x01010101:08x}u"

    def load(x: str) -> str:
        return f"tvm_ext_dsp_load(&row[{times(x, channels)}])"

    def pairs(begin: int, end: int, a: str, b: str) -> list[str]:
        if begin == end:
            return []
        x = f"const int32_t x = i * 2{f' - {left}' if left else ''};"
        size = plane.rows * plane.words
        body = [
            *([x] if "x" in a.replace("0x", "") else []),
            f"const uint32_t a = {a}, b = {b};",
            f"const uint32_t a_even = tvm_ext_dsp_even_{kind}(a), a_odd = tvm_ext_dsp_odd_{kind}(a);",
            f"const uint32_t b_even = tvm_ext_dsp_even_{kind}(b), b_odd = tvm_ext_dsp_odd_{kind}(b);",
            "cell[i] = tvm_ext_dsp_lows(a_even, b_even);",
            f"cell[i + {size}] = tvm_ext_dsp_lows(a_odd, b_odd);",
            f"cell[i + {2 * size}] = tvm_ext_dsp_highs(a_even, b_even);",
            f"cell[i + {3 * size}] = tvm_ext_dsp_highs(a_odd, b_odd);",
        ]
        return [f"for (int32_t i = {begin}; i < {end}; ++i) {{", block(body), "}"]

    def inside(x: str) -> str:
        return f"{x} >= 0 && {x} < {columns} ? {load(x)} : {filler}"

    lines = [
        *pairs(0, inner_begin, inside("x"), inside("(x + 1)")),
        *pairs(inner_begin, inner_end, load("x"), load("(x + 1)")),
        *pairs(inner_end, plane.words, inside("x"), inside("(x + 1)")),
    ]
    if operator.window.padding[0] or operator.window.padding[2]:
        fill = pairs(0, plane.words, filler, filler)
        lines = ["if (row == NULL) {", block([*fill, "return;"]), "}", *lines]
    ctype = C_TYPES[source.dtype]
    return f"TVM_EXT_DSP_SHARED void $_expand(uint32_t *cell, const {ctype} *row)\n{{\n{block(lines)}\n}}\n"


def _channel(operator: QConv2d, stored: StoredRows, finish: FastRequantize, taps: RowTaps, plane: Plane) -> str:
    """`$_channel(...)`: output rows [h, end) of channel k from its plane."""
    output, window = operator.output, operator.window
    _, _, columns, channels = output.shape
    ctype = C_TYPES[output.dtype]
    constants = [p for p in qconv2d.parameters(operator, finish.exact) if p.role == "constant"]
    arguments = [replace(p, ctype="uint32_t") if p.name == "weights" else p for p in constants]
    position = ["const uint32_t *plane", *(["int32_t n"] if output.shape[0] > 1 else []), "int32_t h", "int32_t end"]
    head = ", ".join([f"{ctype} *output", *(p.declaration() for p in arguments), *position, "int32_t k"])
    kernel_rows, num_words = window.kernel[0], len(taps.words)
    f = f"const uint32_t *restrict f = &weights[{times('k', kernel_rows * num_words)}];"
    weights = [f"const uint32_t f{r}_{i} = f[{r * num_words + i}];" for r in range(kernel_rows) for i in range(num_words)]
    tables = [f"const {p.ctype} {p.name}_k = {p.name}[k];" for p in finish.parameters()]

    def sums(count: int) -> list[str]:
        lines = [f"int32_t sum{q} = start;" for q in range(count)]
        for r in range(kernel_rows):
            used = {word for q in range(count) for _, word, _ in taps.products[q]}
            row = r * window.dilation[0] * plane.words
            lines += [f"const uint32_t x{r}_{word} = x[{row + word}];" for word in sorted(used)]
            for q in range(count):
                lines += [
                    f"sum{q} = tvm_ext_dsp_{function}(x{r}_{word}, f{r}_{i}, sum{q});"
                    for function, word, i in taps.products[q]
                ]
        return lines

    def store(count: int) -> list[str]:
        tables = "".join(f", {p.name}_k" for p in finish.parameters())
        return [f"y[{q * channels}] = $_requantize(sum{q}{tables});" for q in range(count)]

    pairs = columns // COLUMNS
    x_step, y_step = window.strides[1] * COLUMNS // 2, COLUMNS * channels
    row = [
        f"{ctype} *y = &output[{times(_output_row(operator, stored), columns * channels)} + k];",
        "const uint32_t *x = plane;",
    ]
    if pairs:
        pair = [*sums(COLUMNS), *store(COLUMNS), f"x += {x_step};", f"y += {y_step};"]
        row += [f"for (int32_t w = 0; w < {pairs}; ++w) {{", block(pair), "}"]
    if columns > pairs * COLUMNS:
        row += ["{", block([*sums(1), *store(1)]), "}"]
    row.append(f"plane += {window.strides[0] * plane.words};")
    lines = [f, *weights, "const int32_t start = bias[k];", *tables, "for (; h < end; ++h) {", block(row), "}"]
    return f"TVM_EXT_DSP_SHARED void $_channel({head})\n{{\n{block(lines)}\n}}\n"


def _output_row(operator: QConv2d, stored: StoredRows) -> str:
    batch, height = operator.output.shape[:2]
    return f"(n * {height} + h)" if batch > 1 else slot("h", stored.output)


def _body(operator: QConv2d, stored: StoredRows, finish: FastRequantize, taps: RowTaps, plane: Plane) -> str:
    """Strips of rows; in each, four channels at a time are expanded, then computed one by one."""
    window, source = operator.window, operator.inputs[0]
    batch, height, columns, channels = source.shape
    constants = [p.name for p in qconv2d.parameters(operator, finish.exact) if p.role == "constant"]
    image = ["n"] if batch > 1 else []
    size = plane.rows * plane.words
    call = ", ".join(["output", *constants, f"&cells[{times('j', size)}]", *image, "h", "end", "k + j"])
    row = f"n * {height} + y" if batch > 1 else slot("y", stored.input(0))
    place = f"&input[{times(row, columns * channels)} + k]"
    if window.padding[0] or window.padding[2]:
        place = f"y < 0 || y >= {height} ? NULL : {place}"
    first = f"{offset({'h': window.strides[0]})}{f' - {window.padding[0]}' if window.padding[0] else ''}"
    spanned = (window.kernel[0] - 1) * window.dilation[0] + 1
    count = f"(end - h - 1) * {window.strides[0]} + {spanned}" if window.strides[0] > 1 else plus("end - h", spanned - 1)
    expand = [f"const int32_t y = top + r;", f"$_expand(&cells[{times('r', plane.words)}], {place});"]
    quad = [
        f"for (int32_t r = 0; r < {count}; ++r) {{",
        block(expand),
        "}",
        f"for (int32_t j = 0; j < {PLANES}; ++j) {{",
        block(f"$_channel({call});"),
        "}",
    ]
    # The last four channels may share some with those before: computing them twice gives the same bytes.
    following = f"k += k + {2 * PLANES} > {channels} && k + {PLANES} < {channels} ? {channels - PLANES} - k : {PLANES}"
    step = f"k += {PLANES}" if channels % PLANES == 0 else following
    strip = [
        f"const int32_t end = row_end - h < {plane.strip} ? row_end : h + {plane.strip};",
        f"const int32_t top = {first};",
        f"for (int32_t k = 0; k < {channels}; {step}) {{",
        block(quad),
        "}",
    ]
    lines = [f"for (int32_t h = row_begin; h < row_end; h += {plane.strip}) {{", block(strip), "}"]
    if batch > 1:
        lines = [f"for (int32_t n = 0; n < {batch}; ++n) {{", block(lines), "}"]
    return "\n".join(["uint32_t *cells = (uint32_t *)(void *)scratch;", *lines])


KERNEL = Kernel(
    name="qdepthwise_dsp",
    operator=QConv2d,
    implement=implement,
    constraints=(
        has_dsp,
        qdepthwise.is_depthwise,
        is_dense_in_columns,
        has_four_channels,
        *qconv2d.CONSTRAINTS,
    ),
)
