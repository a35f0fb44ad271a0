"""Planes of expanded input for depthwise kernels of the DSP extension: four channels of a few rows, as C text.

A plane holds one channel as words of two adjacent columns, each a number of 16 bits; the first word begins with the
first column of padding. How a row of taps meets such words is `RowTaps`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, plus, times
from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import offset, slot
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.dsp.kernels.product_dsp import shared_function, suffix

PLANES = 4
COLUMNS = 2
STRIP_ROWS = range(2, 9)
STRIP_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Expanded input of one channel for a strip of output rows: `rows` by `words` pairs of columns.

    kept: rows at the end that the next strip begins with.
    """

    strip: int
    rows: int
    words: int
    kept: int

    @classmethod
    def of(cls, operator: QConv2d, stored: StoredRows) -> Plane:
        """The highest strip whose planes have no more than STRIP_BYTES, and of no more rows than a call computes."""
        window, output = operator.window, operator.output.shape
        spanned = (window.kernel[0] - 1) * window.dilation[0] + 1
        words = ((output[2] - 1) * window.strides[1] + window.kernel[1] + 1) // 2

        def rows(strip: int) -> int:
            return (strip - 1) * window.strides[0] + spanned

        fitting = [n for n in STRIP_ROWS if 4 * PLANES * rows(n) * words <= STRIP_BYTES]
        strip = min(max(fitting, default=STRIP_ROWS.start), output[1], stored.at_once or output[1])
        return cls(strip=strip, rows=rows(strip), words=words, kept=max(0, spanned - window.strides[0]))

    @property
    def size(self) -> int:
        """Words of a plane."""
        return self.rows * self.words


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
        products: list[tuple[tuple[str, int, int], ...]] = []
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


def pack(weight: np.ndarray, taps: RowTaps) -> np.ndarray:
    """int8[C, R, S, 1] -> uint32[C, R, words], each word two taps of 16 bits, the first one low."""
    padded = np.concatenate([weight[..., 0], np.zeros((*weight.shape[:2], 1), np.int8)], axis=2)
    last = weight.shape[2]
    first = padded[:, :, [a for a, _ in taps.words]].astype(np.int16).view(np.uint16).astype(np.uint32)
    second = padded[:, :, [last if b is None else b for _, b in taps.words]].astype(np.int16)
    return np.ascontiguousarray(first | second.view(np.uint16).astype(np.uint32) << np.uint32(16))


def expand_row(operator: QConv2d, plane: Plane) -> str:
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
        body = [
            *([x] if "x" in a.replace("0x", "") else []),
            f"const uint32_t a = {a};",
            f"const uint32_t b = {b};",
            f"const uint32_t a_even = tvm_ext_dsp_even_{kind}(a);",
            f"const uint32_t a_odd = tvm_ext_dsp_odd_{kind}(a);",
            f"const uint32_t b_even = tvm_ext_dsp_even_{kind}(b);",
            f"const uint32_t b_odd = tvm_ext_dsp_odd_{kind}(b);",
            "cell[i] = tvm_ext_dsp_lows(a_even, b_even);",
            f"cell[i + {plane.size}] = tvm_ext_dsp_lows(a_odd, b_odd);",
            f"cell[i + {2 * plane.size}] = tvm_ext_dsp_highs(a_even, b_even);",
            f"cell[i + {3 * plane.size}] = tvm_ext_dsp_highs(a_odd, b_odd);",
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
    return shared_function("$_expand", ["uint32_t *cell", f"const {ctype} *row"], lines)


def expand_strip(operator: QConv2d, stored: StoredRows, plane: Plane) -> list[str]:
    """Rows of the planes for output rows [h, end): those of the strip before that are needed again, and new ones."""
    window = operator.window
    batch, height, columns, channels = operator.inputs[0].shape
    row = f"n * {height} + y" if batch > 1 else slot("y", stored.input(0))
    place = f"&input[{times(row, columns * channels)} + k]"
    if window.padding[0] or window.padding[2]:
        place = f"y < 0 || y >= {height} ? NULL : {place}"
    top = f"{offset({'h': window.strides[0]})}{f' - {window.padding[0]}' if window.padding[0] else ''}"
    spanned = (window.kernel[0] - 1) * window.dilation[0] + 1
    count = (
        f"(end - h - 1) * {window.strides[0]} + {spanned}" if window.strides[0] > 1 else plus("end - h", spanned - 1)
    )
    lines = [f"const int32_t top = {top};"]
    slides = plane.kept and (operator.output.shape[1] > plane.strip or stored.output is not None)
    if slides:
        step = (plane.rows - plane.kept) * plane.words
        moves = [f"cells[{plus('i', j * plane.size)}] = cells[i + {j * plane.size + step}];" for j in range(PLANES)]
        done: list[str] = []
        if stored.output is not None and plane.strip > 1:  # the strip before may have ended where the ring does
            done = [f"const int32_t done = {times('(h - last)', window.strides[0] * plane.words)};"]
            places = [(plus("i", j * plane.size), plus("i + done", j * plane.size)) for j in range(PLANES)]
            moves = [f"cells[{to}] = cells[{source}];" for to, source in places]
        slide = [*done, f"for (int32_t i = 0; i < {plane.kept * plane.words}; ++i) {{", block(moves), "}"]
        lines += ["if (h > row_begin) {", block(slide), "}"]
    return [
        *lines,
        f"for (int32_t r = {f'h > row_begin ? {plane.kept} : 0' if slides else '0'}; r < {count}; ++r) {{",
        block(["const int32_t y = top + r;", f"$_expand(&cells[{times('r', plane.words)}], {place});"]),
        "}",
    ]
