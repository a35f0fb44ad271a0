"""C text of the blocks that `blocking.py` cuts channels into: loops over them, sums in registers, stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from codegen_c.c_text.text import block, plus
from codegen_c.kernels.shared.blocking import Blocking, ChannelRange, channel_ranges
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import Lanes
from codegen_c.operators.scalar import Operand


def over_channels(num_channels: int, blocking: Blocking, body: Callable[[ChannelRange], list[str]]) -> list[str]:
    """`body(segment)` with `k`, the block's first output channel, for every block of every segment."""
    lines: list[str] = []
    for segment in channel_ranges(num_channels, blocking):
        if segment.num_blocks == 1:
            lines += ["{", block([f"const int32_t k = {segment.begin};", *body(segment)]), "}"]
        else:
            head = f"for (int32_t k = {segment.begin}; k < {segment.end}; k += {segment.width}) {{"
            lines += [head, block(body(segment)), "}"]
    return lines


@dataclass(frozen=True, kw_only=True)
class Accumulators:
    """The running sum of pixel p and vector v of a block: sum<p><v>, or an element of an array.

    in_array: sums are `sums[pixels * vectors]`, which functions of tvm_ext_tile_f32x<lanes>.h fill.
    """

    segment: ChannelRange
    pixels: int
    in_array: bool = False

    def name(self, p: int, v: int) -> str:
        return f"sums[{p * self.segment.vectors + v}]" if self.in_array else f"sum{p}{v}"

    def declaration(self) -> str:
        """Definition of the array."""
        return f"{self.segment.lanes.ctype} sums[{self.pixels} * {self.segment.vectors}]; /* pixels by vectors */"

    def cells(self) -> Iterator[tuple[int, int]]:
        return ((p, v) for p in range(self.pixels) for v in range(self.segment.vectors))

    def channel(self, v: int) -> str:
        """First channel of vector v."""
        return plus("k", v * self.segment.lanes.count)

    def start(self, array: str = "bias") -> list[str]:
        """Declarations: every sum starts at its channel's element of an array, the bias."""
        ctype = self.segment.lanes.ctype
        return [f"{ctype} {self.name(p, v)} = {self._first(array, v)};" for p, v in self.cells()]

    def _first(self, array: str, v: int) -> str:
        return self.segment.lanes_of(v).load(array, self.channel(v))

    def begin(self, start: str = "bias") -> list[str]:
        """The array, whose sums start at their channels' elements of `start`."""
        if self.segment.channels < self.segment.width:
            return [self.declaration(), *(f"{self.name(p, v)} = {self._first(start, v)};" for p, v in self.cells())]
        call = f"tvm_ext_tile_f32x{self.segment.lanes.count}_start"
        return [self.declaration(), f"{call}(sums, &{start}[k], {self.pixels}, {self.segment.vectors});"]

    def add(self, x: str, step: str, weights: str, length: str) -> str:
        """Statement that adds products of `length` elements of each pixel, `step` apart, to the array."""
        count, kind = self.segment.lanes.count, self.segment.weights
        if self.segment.pairs_halves:
            return f"tvm_ext_half_product_add(sums, {x}, {step}, {weights}, {length}, {self.pixels});"
        sizes = f"{length}, {self.pixels}, {self.segment.vectors}"
        if kind.is_narrow:
            return f"tvm_ext_tile_narrow_f32x{count}_add(sums, {x}, {step}, {weights}, {kind.constant}, {sizes});"
        return f"tvm_ext_tile_f32x{count}_add(sums, {x}, {step}, {weights}, {sizes});"

    def store(self, finish: Finish, place: Callable[[int], str], residual: Callable[[int, int], str]) -> list[str]:
        """Finish every sum and write it.

        place(p): C expression of pixel p's first output element, empty for 0. residual(i, p): the same for input i.
        """
        lanes = self.segment.lanes
        if not finish.fits(lanes):
            return [line for p in range(self.pixels) for line in self._store_one_by_one(finish, p, place, residual)]
        lines: list[str] = []
        for p, v in self.cells():
            lanes = self.segment.lanes_of(v)

            def read(operand: Operand, p: int = p, v: int = v, lanes: Lanes = lanes) -> str:
                if operand.kind == "input":
                    return lanes.read(f"input{operand.index}", _sum(residual(operand.index, p), self.channel(v)))
                return lanes.load(f"channel{operand.index}", self.channel(v))

            value = finish.call(self.name(p, v), read, lanes)
            lines.append(lanes.write("output", _sum(place(p), self.channel(v)), value))
        return lines

    def _store_one_by_one(
        self, finish: Finish, p: int, place: Callable[[int], str], residual: Callable[[int, int], str]
    ) -> list[str]:
        """Lines for a finish without vector form: vectors go to a small array, its elements are finished one by one."""
        lanes, width, channels = self.segment.lanes, self.segment.width, self.segment.channels
        single = replace(lanes, count=1)

        def read(operand: Operand) -> str:
            if operand.kind == "input":
                return single.read(f"input{operand.index}", _sum(residual(operand.index, p), "k + j"))
            return f"channel{operand.index}[k + j]"

        stores = [lanes.store("sum", str(v * lanes.count), self.name(p, v)) for v in range(self.segment.vectors)]
        finished = single.write("output", _sum(place(p), "k + j"), finish.call("sum[j]", read))
        loop = [f"for (int32_t j = 0; j < {channels}; ++j) {{", block(finished), "}"]
        return ["{", block([f"float sum[{width}] = {{0.0f}};", *stores, *loop]), "}"]


def pixel_place(first: str, p: int, pitch: str) -> str:
    """C expression of the first element of pixel p, where pixel 0 begins at `first`."""
    return first if p == 0 else f"{first} + {pitch}" if p == 1 else f"{first} + {p} * {pitch}"


def _sum(place: str, index: str) -> str:
    return f"{place} + {index}" if place else index
