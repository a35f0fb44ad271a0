"""Strips of rows of depthwise windows by functions of the DSP extension, as C text: from planes to bytes in registers.

Windows of 5x5 and 7x7 have functions that layers share, runtime/tvm_ext_dsp_strip.h; a layer of 3x3 windows of stride 1
has its own, for two rows at a time, runtime/tvm_ext_dsp_strip3.h. Both take one shift for all channels.
"""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.window import rows_of_calls
from codegen_c.operators.kinds import PackedQConv2d, QConv2d
from codegen_c.targets.dsp.kernels.planes_dsp import Plane, RowTaps

AT_ONCE = 4
"""Columns of one block of windows of 5x5 and 7x7."""
MOST_OFFSET = 4095
"""Largest offset of an element that is stored; of a pair of words that is loaded it is 1020."""
MOST_PAIR_OFFSET = 1020


@dataclass(frozen=True, kw_only=True)
class Strips:
    """A layer's function for strips of one channel, with the sizes that it is called with.

    pitch, row: elements of the output from one pixel, and from one row, to the next.
    """

    operator: QConv2d
    plane: Plane
    taps: RowTaps
    common: CommonShift
    pitch: int
    row: int

    @property
    def by_pairs(self) -> bool:
        """True for 3x3 windows: rows in pairs, a last one is left."""
        return self.operator.window.kernel == (3, 3)

    @property
    def columns(self) -> int:
        return self.operator.output.shape[2]

    def fits(self, *, for_speed: bool) -> bool:
        """True where there is such a function: of 3x3 windows where code may grow and offsets stand in instructions."""
        window = self.operator.window
        if isinstance(self.operator, PackedQConv2d):
            return False
        if window.kernel in ((5, 5), (7, 7)):
            return window.strides in ((1, 1), (2, 2)) and self.columns >= AT_ONCE
        return (
            (window.kernel, window.strides, window.dilation) == ((3, 3), (1, 1), (1, 1))
            and for_speed
            and self.columns > 1
            and self.plane.strip > 1
            and self.row + self.pitch <= MOST_OFFSET
            and 12 * self.plane.words <= MOST_PAIR_OFFSET
        )

    def includes(self) -> tuple[str, ...]:
        return ("tvm_ext_dsp_strip.h", *(("tvm_ext_dsp_strip3.h",) if self.by_pairs else ()))

    def definition(self) -> str:
        """The layer's own function `$_rows`, or nothing."""
        if not self.by_pairs:
            return ""
        sizes = (self.plane.words, self.pitch, self.row, self.columns // 2, self.columns % 2)
        kind = "u8" if self.common.is_unsigned else "s8"
        return f"TVM_EXT_DSP_DEFINE_STRIP3($_rows, {', '.join(map(str, sizes))}, {kind}, {self.common.shift})\n"

    def are_even(self, stored: StoredRows) -> bool:
        """True where every strip of every call has an even number of rows; the end of an output's ring cuts one."""
        kept = stored.output
        if kept and (kept.stored % 2 or kept.shift % 2):
            return False
        calls, strip = rows_of_calls(self.operator.output.shape[1], stored), self.plane.strip
        return calls is not None and all(rows % 2 == 0 and (strip % 2 == 0 or rows <= strip) for rows in calls)

    def lines(self, rows: str) -> list[str]:
        """Statements that compute so many rows of channel k, `count`, or `done` of these; pairs where they come so."""
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
        if left:  # a last block, which shares columns with the one before; it begins with a word
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
        common = {
            "output": "&output[k]", "multiplier": "multipliers[k]", "rounding": self.common.rounding, "plane": "plane",
            "weights": f"&weights[{times('k', words)}]", "start": "bias[k]",
        }  # fmt: skip
        fields = [f"strip.{name} = {value};" for name, value in (common | members).items()]
        return ["tvm_ext_dsp_strip strip;", *fields]

    def row_instructions(self) -> int:
        """Modelled instructions of one row of one channel."""
        kernel, stride = self.operator.window.kernel[0], self.operator.window.strides[0]
        if self.by_pairs:
            return 6 + self.columns // 2 * 23 + self.columns % 2 * 14
        one = {(5, 1): 16, (5, 2): 17, (7, 1): 21, (7, 2): 23}[kernel, stride]
        blocks = -(-self.columns // AT_ONCE)
        return blocks * (28 + kernel * one) + 12 * (1 if self.columns % AT_ONCE == 0 else 2)
