"""C text that copies the window of one output pixel into scratch, padding filled in, for the Helium kernels.

In scratch a pixel's channels are `depth` bytes apart, at least as many as there are; bytes between are not
written. Elements become int8: uint8 is turned into it on the way. Padding is the input's zero point.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.helium import flip, signed_zero_point
from codegen_c.kernels.window import clip, slot, tap_range
from codegen_c.operators import TensorType, Window
from codegen_c.text import C_TYPES, block, times


@dataclass(frozen=True, kw_only=True)
class Patch:
    """The window of one output pixel, int8[R, S, depth]."""

    window: Window
    source: TensorType
    depth: int

    @property
    def num_bytes(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1] * self.depth

    @property
    def instructions(self) -> int:
        """Modelled, of one copy."""
        rows, columns = self.window.kernel
        if self._is_run:
            return 30 + rows * (18 + columns * self.depth // 4)
        return 30 + rows * (12 + columns * (16 + self.depth // 4))

    @property
    def _is_run(self) -> bool:
        """Whether a row of the window is one run of bytes, in the input as in scratch."""
        return self.window.dilation[1] == 1 and self.depth == self.source.shape[3]

    def function(self, stored: StoredRows) -> str:
        """Definition of `$_patch`; input: the image's first byte; h, w: the output pixel."""
        (_, height, columns, _), (rows, _) = self.source.shape, self.window.kernel
        row_bytes = self.window.kernel[1] * self.depth
        r_range, s_range = tap_range(0, self.window, ("r_begin", "r_end")), tap_range(1, self.window, ("s_begin", "s_end"))
        row = slot(f"top + {times('r', self.window.dilation[0])}", stored.input(0))
        body = [
            f"int8_t *to = &patch[r * {row_bytes}];",
            *self._skip_row(row_bytes, r_range),
            f"const {C_TYPES[self.source.dtype]} *from = &input[({times(f'({row})', columns)} + left) * {self.source.shape[3]}];",
            *(self._run(row_bytes, s_range) if self._is_run else self._taps(row_bytes, s_range)),
        ]
        lines = [
            *clip(0, self.window, height, "h", names=("top", "r_begin", "r_end")),
            *clip(1, self.window, columns, "w", names=("left", "s_begin", "s_end")),
            f"for (int32_t r = 0; r < {rows}; ++r) {{",
            block(body),
            "}",
        ]
        head = f"TVM_EXT_STEP void $_patch(int8_t *restrict patch, const {C_TYPES[self.source.dtype]} *input, int32_t h, int32_t w)"
        return f"{head}\n{{\n{block(lines)}\n}}\n"

    def _fill(self, place: str, count: str) -> str:
        return f"tvm_ext_fill_i8({place}, {signed_zero_point(self.source)}, {count});"

    def _skip_row(self, row_bytes: int, bounds: tuple[str, str]) -> list[str]:
        """Rows outside the input."""
        begin, end = bounds
        outside = [f"r < {begin}"] if begin != "0" else []
        outside += [] if end.isdigit() else [f"r >= {end}"]
        if not outside:
            return []
        return [f"if ({' || '.join(outside)}) {{", block([self._fill("to", str(row_bytes)), "continue;"]), "}"]

    def _run(self, row_bytes: int, bounds: tuple[str, str]) -> list[str]:
        """One copy between what padding fills."""
        begin, end = bounds
        first, last = times(begin, self.depth), times(end, self.depth)
        lines: list[str] = []
        if begin != "0":
            lines += [self._fill("to", first)]
        if not end.isdigit():
            lines += [self._fill(f"&to[{last}]", f"{row_bytes} - {last}")]
        count = str(row_bytes) if begin == "0" and end.isdigit() else f"{times(f'({end} - {begin})', self.depth)}"
        to, source = ("to", "from") if begin == "0" else (f"&to[{first}]", f"&from[{first}]")
        return [*lines, f"tvm_ext_copy_i8({to}, {source}, {count}, {flip(self.source)});"]

    def _taps(self, row_bytes: int, bounds: tuple[str, str]) -> list[str]:
        """Every tap by itself."""
        begin, end = bounds
        channels = self.source.shape[3]
        step = self.window.dilation[1] * channels
        copy = f"tvm_ext_copy_i8(&to[s * {self.depth}], &from[s * {step}], {channels}, {flip(self.source)});"
        padded = begin != "0" or not end.isdigit()
        fill = [self._fill("to", str(row_bytes))] if padded else []
        return [*fill, f"for (int32_t s = {begin}; s < {end}; ++s) {{", block(copy), "}"]
