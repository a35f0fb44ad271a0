"""The function of one channel of qdepthwise_dsp.py, as C text: products of words of its plane and its taps, unrolled.

Where runtime/tvm_ext_dsp_strip*.h has functions for strips of its windows, it calls them (strips_dsp.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.c_text.text import block, structure, times
from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.operators.kinds import PackedQConv2d, QConv2d
from codegen_c.targets.dsp.kernels.planes_dsp import COLUMNS, Plane, RowTaps, nibble_bytes
from codegen_c.targets.dsp.kernels.product_dsp import shared_function
from codegen_c.targets.dsp.kernels.requantize_dsp import FastRequantize
from codegen_c.targets.dsp.kernels.strips_dsp import Strips

PARAMETERS = [
    "uint8_t *output", "const uint32_t *restrict weights", "const int32_t *restrict bias",
    "const int32_t *restrict multipliers", "const uint8_t *restrict shifts", "const uint32_t *plane", "int32_t count",
    "int32_t k",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A layer's function for rows of one channel: two output columns at a time.

    common: the shift of all channels, where they share one. pitch, row: elements of the output from one pixel, and from
    one row, to the next. strips: functions for strips, where there are some.
    """

    operator: QConv2d
    finish: FastRequantize
    common: CommonShift | None
    taps: RowTaps
    plane: Plane
    pitch: int
    row: int
    strips: Strips | None

    def definition(self, *, is_even: bool) -> str:
        """`$_channel(...)`, a tvm_ext_dsp_channel.

        By functions for strips where there are, but for a last row that pairs leave. is_even: they leave none.
        """
        strips, unused = self.strips, ["(void)shifts;"] if self.common else []
        if strips and (is_even or not strips.by_pairs):
            return shared_function("$_channel", PARAMETERS, [*unused, *strips.lines("count")])
        lines = [f"const int32_t row_elements = {self.row};", f"const int32_t row_words = {self.plane.words};"]
        lines += [*self._weights(), f"const int32_t start = {self._start};", *self._tables()]
        if strips:
            done = ["const int32_t done = count - count % 2; /* rows, in pairs */", *strips.lines("done")]
            last = [f"plane = &plane[done * {self.plane.words}];", *lines, *self._rows("done")]
            lines = [*done, "if (count > done) {", block(last), "}"]
        else:
            lines += self._rows("0")
        return shared_function("$_channel", PARAMETERS, [*unused, *self._requantize(), *lines])

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
        """The layer's constants of requantization; sums have none."""
        members = self.finish.members()
        if self.common:
            members |= {"channel_step": 1, "common_shift": self.common.shift}
        return [] if self._has_sums else structure("tvm_ext_dsp_requantize", "requantize", members)

    def _tables(self) -> list[str]:
        """The channel's multiplier, and its shift."""
        if self._has_sums:
            return ["(void)multipliers;", "(void)shifts;"]
        names = ("multiplier",) if self.common else ("multiplier", "shift")
        return [f"const int32_t {name} = tvm_ext_dsp_{name}(&requantize, {name}s, k);" for name in names]

    def _weights(self) -> list[str]:
        """Words of two taps, f<r>_<i>, in registers."""
        kernel_rows, num_words = self.operator.window.kernel[0], len(self.taps.words)
        place = (
            f"const uint32_t *restrict f = &weights[{times('k', kernel_rows * num_words)}]; "
            "/* f<r>_<i>: words of two taps of kernel row r */"
        )
        words = [f"f[{i}]" for i in range(kernel_rows * num_words)]
        if self._is_packed:
            place, words = self._nibbles()
        return [
            place,
            *(
                f"const uint32_t f{r}_{i} = {words[r * num_words + i]};"
                for r in range(kernel_rows)
                for i in range(num_words)
            ),
        ]

    def _nibbles(self) -> tuple[str, list[str]]:
        """The place of a channel's weights of 4 bits, and words of two taps, each 16 times its weight."""
        kernel_rows, kernel_columns = self.operator.window.kernel
        size = times("k", nibble_bytes(kernel_rows * kernel_columns))
        place = f"const int8_t *restrict f = &((const int8_t *)weights)[{size}]; /* f<r>_<i>: 16 times two taps */"

        def tap(r: int, s: int | None) -> str:
            return "0u" if s is None else f"tvm_ext_dsp_nibble(f, {r * kernel_columns + s})"

        pairs = [(tap(r, a), tap(r, b)) for r in range(kernel_rows) for a, b in self.taps.words]
        return place, [f"tvm_ext_dsp_lows({a}, {b})" for a, b in pairs]

    def _rows(self, first: str) -> list[str]:
        """The loop over rows, from `first` on: pairs of columns, then a last one."""
        columns = self.operator.output.shape[2]
        strides, pairs = self.operator.window.strides, columns // COLUMNS
        target = "int32_t *y = &((int32_t *)(void *)output)" if self._has_sums else "uint8_t *y = &output"
        row = [
            f"{target}[h * row_elements + k];",
            "const uint32_t *x = plane; /* x<r>_<i>: words of two columns of input row r */",
        ]
        if pairs:
            steps = [f"x += {strides[1] * COLUMNS // 2};", f"y += {COLUMNS * self.pitch};"]
            pair = [*self._sums(COLUMNS), *self._store(COLUMNS), *steps]
            row += [f"for (int32_t w = 0; w < {pairs}; ++w) {{", block(pair), "}"]
        if columns > pairs * COLUMNS:
            row += ["{", block([*self._sums(1), *self._store(1)]), "}"]
        row.append(f"plane += {times('row_words', strides[0])};")
        return [f"for (int32_t h = {first}; h < count; ++h) {{", block(row), "}"]

    def _sums(self, count: int) -> list[str]:
        """Sums of the products of so many columns."""
        window, products = self.operator.window, self.taps.products
        lines = [f"int32_t sum{q} = start;" for q in range(count)]
        for r in range(window.kernel[0]):
            used = {word for q in range(count) for _, word, _ in products[q]}
            row = r * window.dilation[0] * self.plane.words
            lines += [f"const uint32_t x{r}_{word} = x[{row + word}];" for word in sorted(used)]
            for q in range(count):
                lines += [
                    f"sum{q} = tvm_ext_dsp_{function}(x{r}_{word}, f{r}_{i}, sum{q});"
                    for function, word, i in products[q]
                ]
        return lines

    def _store(self, count: int) -> list[str]:
        """Results of so many columns, at their places."""
        if self._has_sums:
            return [f"y[{q * self.pitch}] = sum{q};" for q in range(count)]
        down = " >> 4" if self._is_packed and self.finish.exact.rounding == "tflite" else ""
        shift = "0" if self.common else "shift"
        return [
            f"y[{q * self.pitch}] = (uint8_t)tvm_ext_dsp_element(&requantize, sum{q}{down}, multiplier, {shift});"
            for q in range(count)
        ]
