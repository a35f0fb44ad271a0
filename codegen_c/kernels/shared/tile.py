"""Register blocking of float kernels: some pixels by some output channels, accumulated side by side.

Output channels are cut into ranges of equal blocks: as many full blocks as fit, then single vectors, then a
last block of single floats. Weights are packed in that order, each block's channels innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import block, plus
from codegen_c.kernels.contract import Target
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import SCALAR, Lanes, native_lanes
from codegen_c.operators.scalar import Operand


@dataclass(frozen=True, kw_only=True)
class Blocking:
    """`pixels` by `vectors` vectors of `lanes` floats in registers."""

    lanes: Lanes
    vectors: int
    pixels: int

    @property
    def width(self) -> int:
        return self.lanes.count * self.vectors


def native_blocking(target: Target) -> Blocking:
    """Blocks that the registers of the processor hold: accumulators, one row of weights, one input element."""
    vectors, pixels = target.instruction_set.floats.product
    return Blocking(lanes=native_lanes(target), vectors=vectors, pixels=pixels if target.optimize == "speed" else 1)


@dataclass(frozen=True, kw_only=True)
class ChannelRange:
    """Output channels [begin, end) in blocks of `lanes` x `vectors`."""

    begin: int
    end: int
    lanes: Lanes
    vectors: int

    @property
    def width(self) -> int:
        return self.lanes.count * self.vectors


def channel_ranges(num_channels: int, blocking: Blocking) -> list[ChannelRange]:
    """Ranges that `num_channels` are cut into."""
    found: list[ChannelRange] = []
    begin = 0
    for lanes, vectors in ((blocking.lanes, blocking.vectors), (blocking.lanes, 1), (SCALAR, 4)):
        width = lanes.count * vectors
        end = begin + (num_channels - begin) // width * width
        if end > begin:
            found.append(ChannelRange(begin=begin, end=end, lanes=lanes, vectors=vectors))
            begin = end
    if num_channels > begin:
        found.append(ChannelRange(begin=begin, end=num_channels, lanes=SCALAR, vectors=num_channels - begin))
    return found


def lanes_finished(num_channels: int, finish: Finish, blocking: Blocking) -> list[Lanes]:
    """Widths in which elements are finished: those of the ranges, or single floats where vectors cannot be."""
    segments = channel_ranges(num_channels, blocking)
    return [segment.lanes if finish.fits(segment.lanes) else SCALAR for segment in segments]


def pack(weight: np.ndarray, blocking: Blocking) -> np.ndarray:
    """[K, ...] -> block after block, [...][block's channels] each, as the ranges read them."""
    parts: list[np.ndarray] = []
    for segment in channel_ranges(weight.shape[0], blocking):
        blocks = weight[segment.begin : segment.end].reshape(-1, segment.width, *weight.shape[1:])
        parts.append(np.moveaxis(blocks, 1, -1).ravel())
    return np.concatenate(parts)


def over_channels(num_channels: int, blocking: Blocking, body: Callable[[ChannelRange], list[str]]) -> list[str]:
    """`body(segment)` with `k`, the block's first output channel, for every block of every segment."""
    lines: list[str] = []
    for segment in channel_ranges(num_channels, blocking):
        if segment.end - segment.begin == segment.width:
            lines += ["{", block([f"const int32_t k = {segment.begin};", *body(segment)]), "}"]
        else:
            head = f"for (int32_t k = {segment.begin}; k < {segment.end}; k += {segment.width}) {{"
            lines += [head, block(body(segment)), "}"]
    return lines


@dataclass(frozen=True, kw_only=True)
class Accumulators:
    """sum<p><v>: the running sum of pixel p and vector v of a block."""

    segment: ChannelRange
    pixels: int

    def cells(self) -> Iterator[tuple[int, int]]:
        return ((p, v) for p in range(self.pixels) for v in range(self.segment.vectors))

    def channel(self, v: int) -> str:
        """First channel of vector v."""
        return plus("k", v * self.segment.lanes.count)

    def start(self, array: str = "bias") -> list[str]:
        """Declarations: every sum starts at its channel's element of an array, the bias."""
        lanes = self.segment.lanes
        return [f"{lanes.ctype} sum{p}{v} = {lanes.load(array, self.channel(v))};" for p, v in self.cells()]

    def multiply(self) -> list[str]:
        """One input element x<p>[c] of each pixel times the weights at f."""
        lanes = self.segment.lanes
        inputs = [f"const float a{p} = x{p}[c];" for p in range(self.pixels)]
        weights = [
            f"const {lanes.ctype} f{v} = {lanes.load('f', str(v * lanes.count))};" for v in range(self.segment.vectors)
        ]
        sums = [f"sum{p}{v} = {lanes.fma_n(f'a{p}', f'f{v}', f'sum{p}{v}')};" for p, v in self.cells()]
        return [*inputs, *weights, *sums]

    def store(self, finish: Finish, place: Callable[[int], str], residual: Callable[[int, int], str]) -> list[str]:
        """Finish every sum and write it.

        place(p): C expression of pixel p's first output element, empty for 0. residual(i, p): the same for input i.
        """
        lanes = self.segment.lanes
        if not finish.fits(lanes):
            return [line for p in range(self.pixels) for line in self._store_one_by_one(finish, p, place, residual)]
        lines: list[str] = []
        for p, v in self.cells():

            def read(operand: Operand, p: int = p, v: int = v) -> str:
                if operand.kind == "input":
                    return lanes.load(f"input{operand.index}", _sum(residual(operand.index, p), self.channel(v)))
                return lanes.load(f"channel{operand.index}", self.channel(v))

            value = finish.call(f"sum{p}{v}", read, lanes)
            lines.append(lanes.store("output", _sum(place(p), self.channel(v)), value))
        return lines

    def _store_one_by_one(
        self, finish: Finish, p: int, place: Callable[[int], str], residual: Callable[[int, int], str]
    ) -> list[str]:
        """Lines for a finish without vector form: vectors go to a small array, its elements are finished one by one."""
        lanes, width = self.segment.lanes, self.segment.width

        def read(operand: Operand) -> str:
            if operand.kind == "input":
                return f"input{operand.index}[{_sum(residual(operand.index, p), 'k + j')}]"
            return f"channel{operand.index}[k + j]"

        stores = [lanes.store("sum", str(v * lanes.count), f"sum{p}{v}") for v in range(self.segment.vectors)]
        finished = f"output[{_sum(place(p), 'k + j')}] = {finish.call('sum[j]', read)};"
        loop = [f"for (int32_t j = 0; j < {width}; ++j) {{", block(finished), "}"]
        return ["{", block([f"float sum[{width}];", *stores, *loop]), "}"]


def _sum(place: str, index: str) -> str:
    return f"{place} + {index}" if place else index
