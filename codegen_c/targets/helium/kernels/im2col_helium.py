"""C text that copies the window of one output pixel into scratch, padding filled in, for the Helium kernels.

In scratch a pixel's channels are `depth` bytes apart, at least as many as there are; bytes between are not
written. Elements become int8: uint8 is turned into it on the way. Padding is the input's zero point.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.c_text.text import C_TYPES, block, times
from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.shared.window import Bound, clip, num_taps, offset, over, slot, tap_range
from codegen_c.operators.kinds import TensorType, Window
from codegen_c.targets.helium.kernels.helium import copy, signed_zero_point


@dataclass(frozen=True, kw_only=True)
class Im2col:
    """The window of one output pixel, int8[R, S, depth]."""

    window: Window
    source: TensorType
    depth: int

    @property
    def num_bytes(self) -> int:
        return self.window.kernel[0] * self.window.kernel[1] * self.depth

    @property
    def instructions(self) -> int:
        """Modelled instructions of one copy."""
        rows, columns = self.window.kernel
        fill = self.num_bytes // 16 if any(self.window.padding) else 0
        if self._is_run:
            return 25 + fill + rows * (8 + columns * self.depth * 3 // 16)
        return 25 + fill + rows * (8 + columns * (9 + self.depth * 3 // 16))

    @property
    def _is_run(self) -> bool:
        """True where a row of the window is one run of bytes, in the input as in scratch."""
        return self.window.dilation[1] == 1 and self.depth == self.source.shape[3]

    def function(self, stored: StoredRows) -> str:
        """Definition of `$_patch`; input: the image's first byte; h, w: the output pixel."""
        _, height, columns, channels = self.source.shape
        names = (("top", "r_begin", "r_end"), ("left", "s_begin", "s_end"))
        lines = clip(0, self.window, height, "h", names=names[0]) + clip(1, self.window, columns, "w", names=names[1])
        (r_begin, r_end), (s_begin, s_end) = (tap_range(axis, self.window, names[axis][1:]) for axis in (0, 1))
        lines += self._fill((r_begin, r_end, s_begin, s_end))
        start = f"&patch[{times(str(r_begin), self.window.kernel[1] * self.depth)}]" if r_begin != 0 else "patch"
        lines += [f"int8_t *to = {start};"]
        ctype, dilation, kept = C_TYPES[self.source.dtype], self.window.dilation[0], stored.input(0)
        copies = self._run(s_begin, s_end) if self._is_run else self._taps(s_begin, s_end)
        advance = [f"to += {self.window.kernel[1] * self.depth};"]

        def row(r: str) -> str:
            pixel = f"{times(f'({slot(r, kept)})', columns)} + left"
            return f"const {ctype} *from = &input[({pixel}) * {channels}];"

        if num_taps(r_begin, r_end) == 1:
            lines += [row(offset({"top": 1})), *copies]
        elif kept is None:
            lines += [row(offset({"top": 1, str(r_begin): dilation if r_begin != 0 else 0}))]
            lines += over("r", r_begin, r_end, copies, between=[*advance, f"from += {dilation * columns * channels};"])
        else:
            lines += over("r", r_begin, r_end, [row(offset({"top": 1, "r": dilation})), *copies], between=advance)
        head = f"TVM_EXT_STEP void $_patch(int8_t *restrict patch, const {ctype} *input, int32_t h, int32_t w)"
        return f"{head}\n{{\n{block(lines)}\n}}\n"

    def _fill(self, bounds: tuple[Bound, Bound, Bound, Bound]) -> list[str]:
        """The zero point everywhere, where a part of the window lies outside the input."""
        begins, ends = bounds[0::2], zip(bounds[1::2], self.window.kernel, strict=True)
        outside = [f"{begin} > 0" for begin in begins if begin != 0]
        outside += [f"{end} < {size}" for end, size in ends if not isinstance(end, int)]
        if not outside:
            return []
        fill = f"tvm_ext_fill_i8(patch, {signed_zero_point(self.source)}, {self.num_bytes});"
        return [f"if ({' || '.join(outside)}) {{", block(fill), "}"]

    def _run(self, begin: Bound, end: Bound) -> list[str]:
        """All taps of a row at once."""
        first, taps = times(str(begin), self.depth), num_taps(begin, end)
        to, source = ("to", "from") if begin == 0 else (f"&to[{first}]", f"&from[{first}]")
        count = taps * self.depth if isinstance(taps, int) else times(taps, self.depth)
        return [copy(self.source, to, source, count)]

    def _taps(self, begin: Bound, end: Bound) -> list[str]:
        """Every tap by itself."""
        channels = self.source.shape[3]
        source = f"&from[s * {self.window.dilation[1] * channels}]"
        one = copy(self.source, f"&to[s * {self.depth}]", source, channels)
        return over("s", begin, end, [one])
