"""Kernels for quantized depthwise conv2d, and conv2d in groups of few channels, by the DSP extension.

Weights have 8 bits, or 4 in depthwise layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from codegen_c.c_text.text import block, loop, structure, times
from codegen_c.kernels.contract import Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.convolution.qconv2d import QCONV2D_PACKED_CONSTRAINTS
from codegen_c.kernels.measurements import Block
from codegen_c.kernels.shared.bit_widths import pack_pairs
from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.own_rounding import OwnRounding
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.requantize import wrapped
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.kernels.shared.two_roundings import ScaledSums
from codegen_c.kernels.shared.window import over, row_elements, rows_of_calls
from codegen_c.operators.kinds import PackedQConv2d, QConv2d
from codegen_c.targets.dsp.kernels.convolution import sixteenfold_sums_fit
from codegen_c.targets.dsp.kernels.product import HEADERS, INCLUDES, FastRequantize, shared_function, start

# Planes of expanded input for depthwise kernels of the DSP extension: four channels of a few rows, as C text.
#
# A plane holds one channel as words of two adjacent columns, each a 16-bit number; the first word begins with the first
# column of padding. `RowTaps` holds the products of a row of taps with such words. If columns are dilated by d, taps
# read every d-th column, and so do outputs d columns apart: each row of a plane is d phases, one after the other, and a
# phase holds every d-th column, of which adjacent ones share a word.

PLANES = 4
COLUMNS = 2
STRIP_ROWS = range(2, 9)
STRIP_BYTES = 2048
EXPAND_INSTRUCTIONS = 8
"""Modelled instructions to expand an input row of four channels, not counting its words."""
WORD_INSTRUCTIONS, FEW_WORDS_INSTRUCTIONS, PADDING_INSTRUCTIONS = 15.5, 12.5, 5
"""Modelled instructions to expand a word, which holds two columns of four planes: if the row has many words; if it has
few, so that GCC unrolls the loop; and if the word is padding."""
FEW_WORDS = 4
KEEP_INSTRUCTIONS, KEEP_WORD_INSTRUCTIONS = 64, 3.5
"""Modelled instructions to move the rows of four planes that the next strip needs, and for each word of them."""
STRIP_INSTRUCTIONS = 50
"""Modelled instructions for a channel of a strip, not counting its rows and the loads of its weights."""
STRIP_BLOCKS: tuple[Block, ...] = ((1,), (2,), (4,), (6,), (8,), (12,), (16,), (24,))


def strip_blocks(operator: QConv2d, target: Target) -> tuple[Block, ...]:
    """Return the strip heights that `Plane.of` supports; higher strips take more scratch."""
    return STRIP_BLOCKS


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Expanded input of one channel for a strip of output rows: `rows` by `words` pairs of columns.

    phase_words: words of one phase of a row; all words if columns are not dilated.
    spanned: input rows of one output row.
    kept: rows at the end that the next strip begins with.
    """

    strip: int
    rows: int
    words: int
    phase_words: int
    spanned: int
    kept: int

    @classmethod
    def of(cls, operator: QConv2d, stored: StoredRows, block: Block = ()) -> Plane:
        """Return the highest strip whose planes have at most STRIP_BYTES, and at most the rows of a call.

        block: the number of rows, if it is given. Several strips of 3x3 windows have an even number.
        """
        window, output = operator.window, operator.output.shape
        spanned = (window.kernel[0] - 1) * window.dilation[0] + 1
        phases = window.dilation[1]
        phase_words = ((-(-output[2] // phases) - 1) * window.strides[1] + window.kernel[1] + 1) // 2
        words = phases * phase_words

        def rows(strip: int) -> int:
            return (strip - 1) * window.strides[0] + spanned

        fitting = [n for n in STRIP_ROWS if 4 * PLANES * rows(n) * words <= STRIP_BYTES]
        highest = block[0] if block else max(fitting, default=STRIP_ROWS.start)
        wanted = min(output[1], stored.at_once or output[1])
        if window.kernel == (3, 3) and highest < wanted:
            highest -= highest % 2 if highest > 1 else 0  # such rows are computed in pairs
        strip = min(highest, wanted)
        return cls(
            strip=strip, rows=rows(strip), words=words, phase_words=phase_words, spanned=spanned,
            kept=max(0, spanned - window.strides[0]),
        )  # fmt: skip

    @property
    def size(self) -> int:
        """Words of a plane."""
        return self.rows * self.words


@dataclass(frozen=True, kw_only=True)
class RowTaps:
    """Products of a kernel row of S taps with words of two columns.

    words: taps of each weight word, None for a zero. products[q]: what is added to the sum of output column q, as
    (function, input word, weight word).
    """

    words: tuple[tuple[int, int | None], ...]
    products: tuple[tuple[tuple[str, int, int], ...], ...]

    @classmethod
    def of(cls, taps: int, stride: int, columns: int) -> RowTaps:
        """Return the products for `columns` adjacent output columns, where the first one's taps begin with a word."""
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
    """Pack integers[C, R, S, 1] as uint32[C, R, words], each word two taps of 16 bits, the first one low."""
    padded = np.concatenate([weight[..., 0], np.zeros((*weight.shape[:2], 1), weight.dtype)], axis=2)
    last = weight.shape[2]
    first = padded[:, :, [a for a, _ in taps.words]].astype(np.int16).view(np.uint16).astype(np.uint32)
    second = padded[:, :, [last if b is None else b for _, b in taps.words]].astype(np.int16)
    return np.ascontiguousarray(first | second.view(np.uint16).astype(np.uint32) << np.uint32(16))


def nibble_bytes(num_taps: int) -> int:
    """Return the bytes of a channel's weights of 4 bits."""
    return (num_taps + 1) // 2


def pack_nibbles(weight: np.ndarray) -> np.ndarray:
    """Pack int8[C, R, S, 1] from -8 to 7 as uint32: taps channel after channel, two to a byte, the first one low."""
    taps = weight.reshape(len(weight), -1)
    even = np.concatenate([taps, np.zeros((len(taps), taps.shape[1] % 2), np.int8)], axis=1)
    packed = pack_pairs(even[:, 0::2], even[:, 1::2]).ravel()
    return np.append(packed, np.zeros(-packed.size % 4, np.uint8)).view(np.uint32)


# Strips of rows of depthwise windows by functions of the DSP extension, as C text: from planes to bytes in registers.
#
# Windows of 5x5 and 7x7 use functions that layers share, runtime/tvm_ext_dsp_strip.h; a layer of 3x3 windows has a
# function of its own for two rows at a time: runtime/tvm_ext_dsp_strip3.h, for stride 2 tvm_ext_dsp_strip3_by_twos.h.
# Both require one shift for all channels: that of a `CommonShift` with one rounding, that of `ScaledSums` with two,
# whose weights come times powers of two, or else that of an `OwnRounding`.

AT_ONCE = 4
"""Columns of one block of windows of 5x5 and 7x7."""
MOST_OFFSET = 4095
"""Largest offset of a store; that of a load of two words is 1020."""
MOST_PAIR_OFFSET = 1020
STRIP_SHIFTS = (10, 8, 4)
"""Shifts for which the functions of 5x5 and 7x7 windows exist."""

LEAST_BLOCKS = 1000
"""Blocks of 2x2 elements of an image for which a loop over columns repeats the code of a block. Each further copy takes
about 190 bytes, and an iteration about 4 cycles."""

OneShift = CommonShift | ScaledSums | OwnRounding
"""Requantization of all channels by one shift."""


def factors_of(common: OneShift) -> tuple[str, str]:
    """Return C expressions of the multiplier and the rounding of channel k."""
    if isinstance(common, CommonShift):
        return "multipliers[k]", str(common.rounding)
    return "multipliers[2 * k]", "multipliers[(2 * k) + 1]"


@dataclass(frozen=True, kw_only=True)
class Strips:
    """A layer's function for strips of one channel, with the sizes of its arguments.

    pitch, row: elements of the output from one pixel, and from one row, to the next.
    """

    operator: QConv2d
    plane: Plane
    taps: RowTaps
    common: OneShift
    pitch: int
    row: int

    @property
    def by_pairs(self) -> bool:
        """True for 3x3 windows, which are computed by pairs of rows; a last row may remain."""
        return self.operator.window.kernel == (3, 3)

    @property
    def _stride(self) -> int:
        return self.operator.window.strides[0]

    @property
    def columns(self) -> int:
        return self.operator.output.shape[2]

    @property
    def _pairs(self) -> int:
        return self.columns // 2

    @property
    def _blocks(self) -> int:
        """Pairs of columns of an iteration: as many as divide those of a row, if the image pays for their code."""
        _, rows, _, channels = self.operator.output.shape
        is_large = channels * rows // 2 * self._pairs >= LEAST_BLOCKS
        return next(n for n in (3, 2, 1) if self._pairs % n == 0) if is_large else 1

    def fits(self, *, for_speed: bool) -> bool:
        """Return True if such a function exists: for 3x3 windows if code may grow and offsets fit the instructions."""
        window = self.operator.window
        if isinstance(self.operator, PackedQConv2d) or window.dilation[1] > 1:
            return False
        if window.kernel in ((5, 5), (7, 7)):
            has_function = window.strides in ((1, 1), (2, 2)) and self.common.shift in STRIP_SHIFTS
            return has_function and self.columns >= AT_ONCE
        is_by_ones = window.strides == (1, 1) and 12 * self.plane.words <= MOST_PAIR_OFFSET
        is_by_twos = window.strides == (2, 2) and 16 * self.plane.words < MOST_OFFSET
        return (
            (window.kernel, window.dilation) == ((3, 3), (1, 1))
            and (is_by_ones or is_by_twos)
            and for_speed
            and self.columns not in (1, 3)  # a column without a second saves nothing beside a single pair
            and self.plane.strip > 1
            and self.row + 7 * self.pitch <= MOST_OFFSET
        )

    def includes(self) -> tuple[str, ...]:
        headers = ("tvm_ext_dsp_strip3.h", *(("tvm_ext_dsp_strip3_by_twos.h",) if self._stride == 2 else ()))
        return ("tvm_ext_dsp_strip.h", *(headers if self.by_pairs else ()))

    def definition(self) -> str:
        """Return the layer's own function `$_rows`, or an empty text."""
        if not self.by_pairs:
            return ""
        sizes = (self.plane.words, self.pitch, self.row, self._pairs, self._blocks, self.columns % 2)
        kind = "u8" if self.common.is_unsigned else "s8"
        name = "STRIP3_BY_TWOS" if self._stride == 2 else "STRIP3"
        return f"TVM_EXT_DSP_DEFINE_{name}($_rows, {', '.join(map(str, sizes))}, {kind}, {self.common.shift})\n"

    def are_even(self, stored: StoredRows) -> bool:
        """Return True if every strip of every call has an even number of rows; an output ring's end splits strips."""
        kept = stored.output
        if kept and (kept.stored % 2 or kept.shift % 2):
            return False
        calls, strip = rows_of_calls(self.operator.output.shape[1], stored), self.plane.strip
        return calls is not None and all(rows % 2 == 0 and (strip % 2 == 0 or rows <= strip) for rows in calls)

    def lines(self, rows: str) -> list[str]:
        """Return statements that compute rows of channel k: `count`, or `done` of them in pairs."""
        words = len(self.taps.words) * self.operator.window.kernel[0]
        if self.by_pairs:
            lines = [*self._strip({"rows": rows}, words), "$_rows(&strip);"]
            return lines if rows == "count" else [f"if ({rows} > 0) {{", block(lines), "}"]
        window, columns = self.operator.window, self.columns
        stride, row = window.strides[1], self.row
        step = AT_ONCE * stride // 2  # words of the plane
        blocks, left = divmod(columns, AT_ONCE)
        plane_row = self.plane.words * window.strides[0]
        function = f"tvm_ext_dsp_strip_{window.kernel[0]}_{stride}_{self.common.suffix}"
        members = {
            "pitch": self.pitch, "last": self.pitch, "plane_bytes": 4 * self.plane.words * window.dilation[0],
            "end": f"&plane[{step * blocks}]", "output_step": row - AT_ONCE * blocks * self.pitch,
            "plane_step": 4 * (plane_row - step * blocks), "row_bytes": 4 * plane_row, "rows": rows,
        }  # fmt: skip
        lines = [*self._strip(members, words), f"{function}(&strip);"]
        if left:  # a last block, which shares columns with the block before; it begins with a word
            misses = columns % 2 if stride == 1 else 0
            first = columns - AT_ONCE + misses
            word = first * stride // 2
            lines += [
                f"strip.output = &output[k + {first * self.pitch}];",
                f"strip.last = {0 if misses else self.pitch};",
                f"strip.plane = &plane[{word}];",
                f"strip.end = &plane[{word + step}];",
                f"strip.output_step = {row - AT_ONCE * self.pitch};",
                f"strip.plane_step = {4 * (plane_row - step)};",
                f"{function}(&strip);",
            ]
        return lines

    def _strip(self, members: dict[str, int | str], words: int) -> list[str]:
        multiplier, rounding = factors_of(self.common)
        common = {
            "output": "&output[k]", "multiplier": multiplier, "rounding": rounding, "plane": "plane",
            "weights": f"&weights[{times('k', words)}]", "start": "bias[k]",
        }  # fmt: skip
        fields = [f"strip.{name} = {value};" for name, value in (common | members).items()]
        return ["tvm_ext_dsp_strip strip;", *fields]

    def row_instructions(self) -> int:
        """Return the modelled instructions of one row of one channel."""
        kernel, stride = self.operator.window.kernel[0], self._stride
        if self.by_pairs:
            pair, single = (23.5, 14) if stride == 1 else (27, 16)
            return 6 + int(self._pairs * (pair + 2 / self._blocks)) + self.columns % 2 * single
        one = {(5, 1): 16, (5, 2): 17, (7, 1): 21, (7, 2): 23}[kernel, stride]
        blocks = -(-self.columns // AT_ONCE)
        return blocks * (28 + kernel * one) + 12 * (1 if self.columns % AT_ONCE == 0 else 2)


# The function of one channel as C text: products of words of its plane and its taps, unrolled.
#
# If runtime/tvm_ext_dsp_strip*.h has functions for strips of its windows, it calls them.

PARAMETERS = [
    "uint8_t *output", "const uint32_t *restrict weights", "const int32_t *restrict bias",
    "const int32_t *restrict multipliers", "const uint8_t *restrict shifts", "const uint32_t *plane", "int32_t count",
    "int32_t k",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A layer's function for rows of one channel: two output columns at a time.

    common: requantization by one shift of all channels, if there is one. pitch, row: elements of the output from one
    pixel, and from one row, to the next. strips: functions for strips, if there are any.
    """

    operator: QConv2d
    finish: FastRequantize
    common: OneShift | None
    taps: RowTaps
    plane: Plane
    pitch: int
    row: int
    strips: Strips | None

    def definition(self, *, is_even: bool) -> str:
        """Return `$_channel(...)`, a tvm_ext_dsp_channel.

        It calls functions for strips if there are any, except for a last row that pairs leave. is_even: pairs leave no
        row.
        """
        strips, unused = self.strips, ["(void)shifts;"] if self.common else []
        if strips and (is_even or not strips.by_pairs):
            return shared_function("$_channel", PARAMETERS, [*unused, *strips.lines("count")])
        lines = [f"const int32_t row_elements = {self.row};", f"const int32_t row_words = {self.plane.words};"]
        lines += [*self._weights(), f"const int32_t start = {self._start};", *self._tables()]
        if strips:
            done = ["const int32_t done = count - count % 2; /* rows, in pairs */", *strips.lines("done")]
            step = self.operator.window.strides[0] * self.plane.words
            last = [f"plane = &plane[done * {step}];", *lines, *self._rows("done")]
            lines = [*done, "if (count > done) {", block(last), "}"]
        else:
            lines += self._rows("0")
        return shared_function("$_channel", PARAMETERS, [*unused, *self._requantize(), *lines])

    @property
    def _row_words(self) -> list[int]:
        """Words from the first plane of a group to each row of taps: those of a channel, then of the next."""
        rows, row = self.operator.window.kernel[0], self.operator.window.dilation[0] * self.plane.words
        return [c * self.plane.size + r * row for c in range(self.operator.weight.shape[3]) for r in range(rows)]

    @property
    def _has_sums(self) -> bool:
        return holds_sums(self.operator.output)

    @property
    def _is_packed(self) -> bool:
        return isinstance(self.operator, PackedQConv2d)

    @property
    def _start(self) -> str:
        return "bias[k] * 16" if self._is_packed else "bias[k]"

    def _requantize(self) -> list[str]:
        """Return the layer's constants of requantization; none for sums."""
        if self._has_sums or self.common:
            return []
        return structure("tvm_ext_dsp_requantize", "requantize", self.finish.members())

    def _tables(self) -> list[str]:
        """Return the channel's multiplier, and its shift."""
        if self._has_sums:
            return ["(void)multipliers;", "(void)shifts;"]
        if self.common:
            pairs = zip(("multiplier", "rounding"), factors_of(self.common), strict=True)
            return [f"const int32_t {name} = {value};" for name, value in pairs]
        names = ("multiplier", "shift")
        return [f"const int32_t {name} = tvm_ext_dsp_{name}(&requantize, {name}s, k);" for name in names]

    def _weights(self) -> list[str]:
        """Return the words of two taps, f<r>_<i>, in registers."""
        kernel_rows, num_words = len(self._row_words), len(self.taps.words)
        place = (
            f"const uint32_t *restrict f = &weights[{times('k', kernel_rows * num_words)}]; "
            "/* f<r>_<i>: words of two taps of kernel row r */"
        )
        words = [f"f[{i}]" for i in range(kernel_rows * num_words)]
        if self._is_packed:
            place, words = self._nibbles()
        # The second column of a pair has words of its own, which a row without pairs does not read.
        widest = -(-self.operator.output.shape[2] // self.operator.window.dilation[1])
        used = sorted({i for products in self.taps.products[: min(widest, COLUMNS)] for _, _, i in products})
        return [
            place,
            *(f"const uint32_t f{r}_{i} = {words[r * num_words + i]};" for r in range(kernel_rows) for i in used),
        ]

    def _nibbles(self) -> tuple[str, list[str]]:
        """Return the address of a channel's weights of 4 bits, and words of two taps, each 16 times its weight."""
        kernel_rows, kernel_columns = self.operator.window.kernel
        size = times("k", nibble_bytes(kernel_rows * kernel_columns))
        place = f"const int8_t *restrict f = &((const int8_t *)weights)[{size}]; /* f<r>_<i>: 16 times two taps */"

        def tap(r: int, s: int | None) -> str:
            return "0u" if s is None else f"tvm_ext_dsp_nibble(f, {r * kernel_columns + s})"

        pairs = [(tap(r, a), tap(r, b)) for r in range(kernel_rows) for a, b in self.taps.words]
        return place, [f"tvm_ext_dsp_lows({a}, {b})" for a, b in pairs]

    def _rows(self, first: str) -> list[str]:
        """Return the loop over rows from `first` on, of one phase of the columns after the other."""
        columns, strides = self.operator.output.shape[2], self.operator.window.strides
        phases = self.operator.window.dilation[1]
        longer = columns % phases  # phases with one more column than the others
        row: list[str] = []
        for begin, end in ((0, longer), (longer, min(phases, columns))):  # narrow rows have columns in a few phases
            phase = self._columns(-(-(columns - begin) // phases), is_phase=phases > 1)
            if begin < end:
                row += phase if phases == 1 else ["{", block(over("p", begin, end, phase)), "}"]
        row.append(f"plane += {times('row_words', strides[0])};")
        return [f"for (int32_t h = {first}; h < count; ++h) {{", block(row), "}"]

    def _columns(self, columns: int, *, is_phase: bool) -> list[str]:
        """Return the statements of a row, or of phase p of a row: pairs of columns, then a last column."""
        stride, pairs = self.operator.window.strides[1], columns // COLUMNS
        target = "int32_t *y = &((int32_t *)(void *)output)" if self._has_sums else "uint8_t *y = &output"
        place = f" + p * {self.pitch}" if is_phase else ""
        words = f"&plane[p * {self.plane.phase_words}]" if is_phase else "plane"
        row = [
            f"{target}[h * row_elements{place} + k];",
            f"const uint32_t *x = {words}; /* x<r>_<i>: words of two columns of input row r */",
        ]
        if pairs:
            steps = [f"x += {stride * COLUMNS // 2};", f"y += {COLUMNS * self._step};"]
            pair = [*self._sums(COLUMNS), *self._store(COLUMNS), *steps]
            row += loop("w", pairs, pair)
        if columns > pairs * COLUMNS:
            row += ["{", block([*self._sums(1), *self._store(1)]), "}"]
        return row

    @property
    def _step(self) -> int:
        """Elements from an output column to the next of its phase."""
        return self.pitch * self.operator.window.dilation[1]

    def _sums(self, count: int) -> list[str]:
        """Return the sums of the products of `count` columns."""
        products = self.taps.products
        lines = [f"int32_t sum{q} = start;" for q in range(count)]
        for r, row in enumerate(self._row_words):
            used = {word for q in range(count) for _, word, _ in products[q]}
            lines += [f"const uint32_t x{r}_{word} = x[{row + word}];" for word in sorted(used)]
            for q in range(count):
                lines += [
                    f"sum{q} = tvm_ext_dsp_{function}(x{r}_{word}, f{r}_{i}, sum{q});"
                    for function, word, i in products[q]
                ]
        return lines

    def _store(self, count: int) -> list[str]:
        """Return the stores of the results of `count` columns."""
        if self._has_sums:
            return [f"y[{q * self._step}] = sum{q};" for q in range(count)]
        if self.common:
            saturate = f"(uint8_t)tvm_ext_dsp_saturate_{self.common.suffix}"
            product = "tvm_ext_dsp_high_product(sum{q}, multiplier, rounding)"
            return [f"y[{q * self._step}] = {saturate}({product.format(q=q)});" for q in range(count)]
        down = " >> 4" if self._is_packed and self.finish.exact.rounding != "onnx" else ""
        return [
            f"y[{q * self._step}] = (uint8_t)tvm_ext_dsp_element(&requantize, sum{q}{down}, multiplier, shift);"
            for q in range(count)
        ]


# Quantized depthwise conv2d by the DSP extension: two output columns of one channel at a time.
#
# int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], or the sums, int32. Four channels at a time,
# the input rows of a few output rows are expanded to a plane of 16-bit numbers for each channel, padding as zero
# points; then one instruction multiplies two adjacent columns by two taps. Rows that the next strip needs stay in the
# planes, so each input element is read once, and the output may take the memory of the input. The bias contains the
# zero point.
#
# Groups of one, two or four channels, int8[K, R, S, C / groups], use the same planes: a sum adds the products of all
# planes of its group.

MOST_TAPS = 81
WEIGHT_REGISTERS = 9
"""Words of weights that GCC keeps in registers over a row; further words are loaded again for each product."""
LOOPS = Loops(
    function="tvm_ext_dsp_depthwise", layer="tvm_ext_dsp_depthwise_layer",
    includes=("tvm_ext_dsp_depthwise.h", *INCLUDES, *HEADERS),
)  # fmt: skip


def has_few_taps(operator: QConv2d, target: Target) -> bool:
    """a window must have at most 81 taps, and its columns must not have both a stride and a dilation"""
    window = operator.window
    return min(window.dilation[1], window.strides[1]) == 1 and operator.weight[0].size <= MOST_TAPS


def for_speed(operator: QConv2d, target: Target) -> bool:
    """separate code for windows of 3x3 is for speed"""
    return target.optimize == "speed"


def has_small_groups(operator: QConv2d, target: Target) -> bool:
    """groups must have one, two or four input channels, which are fours of channels together; not depthwise"""
    depth = operator.weight.shape[3]
    in_fours = PLANES % depth == 0 and operator.inputs[0].shape[3] % PLANES == 0
    return in_fours and operator.groups > 1 and not qdepthwise.is_depthwise(operator, target)


def has_four_channels(operator: QConv2d, target: Target) -> bool:
    """there must be at least 4 channels"""
    return operator.output.shape[3] >= PLANES


def depthwise_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    is_packed = isinstance(operator, PackedQConv2d)
    requantize = FastRequantize.sixteenfold if is_packed else FastRequantize.of
    finish = requantize(qconv2d.requantize(operator), *qconv2d.bounds(operator))
    window, plane = operator.window, Plane.of(operator, stored, target.block)
    taps = RowTaps.of(window.kernel[1], window.strides[1], min(COLUMNS, operator.output.shape[2]))
    begin = start(operator.inputs[0], operator.weight, operator.bias)
    channels, depth = operator.output.shape[3], operator.weight.shape[3]
    is_plain = qdepthwise.is_depthwise(operator, target)
    pitch, row = stored.pitch or operator.output.shape[3], row_elements(stored, operator.output)
    common = _one_shift(operator)
    bits = common.bits if isinstance(common, ScaledSums | OwnRounding) else np.zeros(len(begin), np.int64)
    added = common.added if isinstance(common, OwnRounding) else np.zeros(len(begin), np.int64)
    strips = _strips(operator, target, plane, taps, common, (pitch, row))
    channel = Channel(
        operator=operator, finish=finish, common=common, taps=taps, plane=plane, pitch=pitch, row=row, strips=strips
    )
    weights, bias, *factors = qconv2d.parameters(operator, finish.exact)[2:-2]
    if common:
        factors = [Parameter(name="multiplier", ctype="int32_t", role="constant")]
    return Parts(
        parameters=(replace(weights, ctype="uint32_t"), bias, *factors),
        constants=(
            ("weights", pack_nibbles(operator.weight) if is_packed else pack(_scaled(operator.weight, bits), taps)),
            ("bias", wrapped((begin + added) << bits)),
            *((("multiplier", _factors(common)),) if common else finish.constants()),
        ),
        members={"strip_rows": plane.strip, **({} if is_plain else {"depth": depth})},
        functions=(
            _expand_row(),
            *((strips.definition(),) if strips and strips.by_pairs else ()),
            channel.definition(is_even=bool(strips and strips.are_even(stored))),
        ),
        leading=("$_expand_row", "$_channel"),
        statements=() if common else finish.tables(),
        tables=("weights", "bias", "multiplier", "NULL" if common else "shift"),
        includes=strips.includes() if strips else (),
        scratch_bytes=4 * PLANES * plane.size,
        instructions=_instructions(operator, stored, finish, taps, plane, strips),
        passes=Passes(
            constants=operator.output.shape[1],  # each channel's weights are read again for every row
            scratch=(operator.groups * depth + window.kernel[0] * channels * depth)
            / PLANES
            * operator.output.shape[1]
            / plane.strip,
        ),
        rows_still_read=operator.output.shape[1] - 1,
        is_in_place=_keeps_places(operator),
    )


def _keeps_places(operator: QConv2d) -> bool:
    """Return True if no element of the input is read after the output element at its position is written.

    Four channels of a single row are read before they are written; so are those of more rows if windows do not skip
    elements. The output may have fewer rows than the input, as a part of a layer does that another core shares, but not
    more columns, which would lie past its end. No channel may be computed twice.
    """
    shape, image = operator.output.shape, operator.inputs[0].shape
    fewer = shape[0] == image[0] == 1 and shape[1] < image[1] and shape[2:] == image[2:]
    keeps = (fewer or shape == image) and operator.window.strides == (1, 1)
    is_one_row = image[1] == shape[1] == 1 and shape[2] <= image[2]
    return (
        (keeps or is_one_row)
        and shape[3] == image[3]
        and not holds_sums(operator.output)
        and operator.output.shape[3] % PLANES == 0
    )


def _one_shift(operator: QConv2d) -> OneShift | None:
    if isinstance(operator, PackedQConv2d) or holds_sums(operator.output):
        return None
    exact, (low, high) = qconv2d.requantize(operator), qconv2d.bounds(operator)
    own = partial(OwnRounding.of, exact, low, high)
    if exact.rounding != "tflite":
        return CommonShift.of(exact, low, high) or own()
    in_strips = ScaledSums.of(exact, low, high, STRIP_SHIFTS) if operator.window.kernel in ((5, 5), (7, 7)) else None
    return in_strips or ScaledSums.of(exact, low, high) or own()


def _factors(common: OneShift) -> np.ndarray:
    if isinstance(common, CommonShift):
        return common.multiplier
    return common.factors(1) if isinstance(common, OwnRounding) else common.factors()


def _scaled(weight: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Return int8[K, R, S, C] times 2^bits of each channel, int16[K, C * R, S, 1]: rows of taps, channel by channel."""
    scaled = (weight.astype(np.int64) << bits.reshape(-1, 1, 1, 1)).astype(np.int16)
    return scaled.transpose(0, 3, 1, 2).reshape(len(weight), -1, weight.shape[2], 1)


def _strips(
    operator: QConv2d, target: Target, plane: Plane, taps: RowTaps, common: OneShift | None, apart: tuple[int, int]
) -> Strips | None:
    """Return the function for strips of rows, if there is one.

    apart: elements of the output from one pixel, and from one row, to the next.
    """
    if common is None or not qdepthwise.is_depthwise(operator, target):
        return None
    strips = Strips(operator=operator, plane=plane, taps=taps, common=common, pitch=apart[0], row=apart[1])
    return strips if strips.fits(for_speed=for_speed(operator, target)) else None


def _instructions(
    operator: QConv2d, stored: StoredRows, finish: FastRequantize, taps: RowTaps, plane: Plane, strips: Strips | None
) -> int:
    """Return the modelled instructions: expanded planes, then products and results of two columns or one at a time."""
    batch, height, columns, channels = operator.output.shape
    depth, stride = operator.weight.shape[3], operator.window.strides[0]
    kernel_rows = operator.window.kernel[0] * depth

    kept = kernel_rows * len(taps.words) <= WEIGHT_REGISTERS

    def group(count: int) -> int:
        found = [product for products in taps.products[:count] for product in products]
        # They are on the stack; a group's are read once for both columns.
        weights = 0 if kept else len(found) if depth == 1 else len({i for _, _, i in found})
        return kernel_rows * (len(found) + len({word for _, word, _ in found}) + weights) + count * finish.instructions

    phases = operator.window.dilation[1]
    pairs = sum(-(-(columns - phase) // phases) // COLUMNS for phase in range(phases))
    row = 4 * phases + pairs * (group(COLUMNS) + 2) + (columns - pairs * COLUMNS) * group(1)
    in_strips = strips.row_instructions() if strips else row
    loads = len(taps.words) * kernel_rows * (5 if isinstance(operator, PackedQConv2d) else 1)
    moved = KEEP_INSTRUCTIONS + KEEP_WORD_INSTRUCTIONS * plane.kept * plane.words if plane.kept else 0
    expanded = own = 0.0
    for strip in strips_of_calls(height, stored, plane.strip):
        first = strip.begin * stride - operator.window.padding[0] + (0 if strip.is_first else plane.kept)
        last = (strip.end - 1) * stride - operator.window.padding[0] + plane.spanned
        expanded += expanded_instructions(operator, plane, first, last) + (0 if strip.is_first else moved)
        rows = strip.end - strip.begin
        single = rows % 2 if strips and strips.by_pairs else 0
        own += STRIP_INSTRUCTIONS + loads + (rows - single) * in_strips + single * row
    return batch * int(-(-operator.inputs[0].shape[3] // PLANES) * expanded + channels * own)


def expanded_instructions(operator: QConv2d, plane: Plane, first: int, last: int) -> float:
    """Return the modelled instructions to expand input rows [first, last) of four channels, some of them padding."""
    _, height, columns, _ = operator.inputs[0].shape
    phases = operator.window.dilation[1]
    inside = min(plane.words, (columns + operator.window.padding[1] % 2 + 1 + phases - 1) // COLUMNS)
    word = FEW_WORDS_INSTRUCTIONS if plane.words <= FEW_WORDS else WORD_INSTRUCTIONS
    rows = max(0, min(last, height) - max(first, 0))
    padding = (last - first) * plane.words - rows * inside
    return (last - first) * EXPAND_INSTRUCTIONS + rows * inside * word + padding * PADDING_INSTRUCTIONS


@dataclass(frozen=True, kw_only=True)
class RowStrip:
    """Output rows [begin, end) that are computed together. is_first: its call has not expanded any rows before."""

    begin: int
    end: int
    is_first: bool


def strips_of_calls(height: int, stored: StoredRows, strip: int) -> Iterator[RowStrip]:
    """Yield the strips of an image.

    A call computes `at_once` rows. A strip has at most `strip` rows, and ends where a ring buffer of the output does.
    """
    at_once, kept = stored.at_once or height, stored.output
    for begin in range(0, height, at_once):
        row, end = begin, min(begin + at_once, height)
        while row < end:
            rows = min(strip, end - row, kept.stored - kept.slot(row) if kept else height)
            yield RowStrip(begin=row, end=row + rows, is_first=row == begin)
            row += rows


def _expand_row() -> str:
    """Return `$_expand_row(...)`, a tvm_ext_dsp_row."""
    return shared_function(
        "$_expand_row", ["uint32_t *cell", "const uint8_t *row"], ["tvm_ext_dsp_expand_row(&$_layer, cell, row);"]
    )


DEPTHWISE = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=depthwise_parts)
QDEPTHWISE = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_dsp",
        title="Quantized depthwise convolution, two output columns of a channel at a time",
        operator=QConv2d,
        constraints=(qdepthwise.is_depthwise, has_few_taps, has_four_channels, *qconv2d.SUMS_TOO),
        blocks=strip_blocks,
    )
)
QCONV2D_GROUPS = DEPTHWISE.kernel(
    Family(
        name="qconv2d_groups_dsp",
        title="Quantized convolution in groups of few channels, two output columns of a channel at a time",
        operator=QConv2d,
        constraints=(has_small_groups, has_few_taps, *qconv2d.SUMS_TOO),
        blocks=strip_blocks,
    )
)
# Weights of 4 bits: a channel's weights are unpacked once for each strip of rows, as 16 times their values.
QDEPTHWISE_PACKED = DEPTHWISE.kernel(
    Family(
        name="qdepthwise_packed_dsp",
        title="Quantized depthwise convolution with weights of 4 bits, two output columns at a time",
        operator=PackedQConv2d,
        constraints=(
            qdepthwise.is_depthwise,
            has_few_taps,
            has_four_channels,
            *QCONV2D_PACKED_CONSTRAINTS,
            sixteenfold_sums_fit,
        ),
        blocks=strip_blocks,
    )
)


KERNELS = (QDEPTHWISE, QCONV2D_GROUPS, QDEPTHWISE_PACKED)
