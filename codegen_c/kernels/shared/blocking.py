"""Register blocking of float kernels: blocks of pixels by output channels, and their C text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import block, loop, plus
from codegen_c.kernels.contract import Target
from codegen_c.kernels.measurements import Block
from codegen_c.kernels.shared.lanes import SCALAR, Finish, Lanes, native_lanes
from codegen_c.kernels.shared.narrow_weights import FLOAT32, WeightType, narrowest
from codegen_c.operators.kinds import Operator
from codegen_c.operators.scalar import Operand

# Register blocking of float kernels, some pixels by some output channels, and its costs.
#
# Output channels are split into ranges of equal blocks: as many full blocks as possible, then a block of the remaining
# vectors. The last vector may hold fewer channels than lanes; if this is not allowed, a last block of single floats
# holds them. Weights are packed in that order, each block's channels innermost, with 0 in lanes without a channel.

SCALAR_PRODUCTS: tuple[Block, ...] = ((4, 2), (4, 3), (4, 4), (4, 5), (2, 4), (2, 6))
VECTOR_PRODUCTS: tuple[Block, ...] = ((1, 3), (1, 4), (1, 5), (1, 6), (2, 2), (2, 3))
"""(vectors, pixels) of products whose accumulators fit the registers, without lanes and with them."""
# Modelled instructions that begin a run of adjacent elements, in the disassembly of GCC 12: pointers to it and to its
# weights; those of a row of taps whose loop is unrolled; a call of tvm_ext_tile_f32x1_add_<pixels>x4, with accumulators
# in memory, which is used for SHORT_RUN elements or more.
RUN_INSTRUCTIONS, RUN_UNROLLED, RUN_CALLED, SHORT_RUN = 6, 4, 22, 8
MOST_UNROLLED = 200
"""Limit of a loop's instructions for which GCC unrolls it completely at -O3 (max-completely-peeled-insns)."""


@dataclass(frozen=True, kw_only=True)
class Blocking:
    """`pixels` by `vectors` vectors of `lanes` floats in registers, within the limits of tvm_ext_tile_f32x<lanes>.h.

    weights: type in which they are stored. loads_several: True if several single floats are loaded at once. adds_by_4:
    True if runs of one pixel by 4 vectors are unrolled by 4. masks: True if a vector may hold fewer channels than
    lanes. loop_instructions, offset_bytes, spills: as in `FloatBlocks`.
    """

    lanes: Lanes
    vectors: int
    pixels: int
    weights: WeightType = FLOAT32
    loads_several: bool = False
    adds_by_4: bool = False
    masks: bool = False
    loop_instructions: int = 3
    offset_bytes: int = 0
    spills: int = 0

    def __post_init__(self) -> None:
        assert self.pixels <= 6 and self.vectors <= 12, f"{self.pixels} pixels by {self.vectors} vectors are too many"

    @property
    def width(self) -> int:
        return self.lanes.count * self.vectors

    def element_instructions(self, segment: ChannelRange, pixels: int) -> float:
        """Return the modelled instructions of one element of each of some pixels by a block:

        loads, products and the loop.
        """
        if segment.pairs_halves:  # two elements at a time
            return (5 * pixels + 7) / 2
        narrow = segment.weights.is_narrow
        if self.loads_several and (segment.lanes.count, segment.vectors) == (1, 4) and pixels <= 4 and not narrow:
            return (3 + 9 * pixels) / 2
        if self.adds_by_4 and segment.lanes.count > 1 and (segment.vectors, pixels) == (4, 1) and not narrow:
            return 2 * segment.vectors + 3 / 4
        return self._products(segment, pixels, 1, pixels) + self.loop_instructions

    def run_instructions(self, segment: ChannelRange, pixels: int, length: int, step: int) -> int:
        """Return the modelled instructions of `length` adjacent elements of pixels that begin `step` elements apart.

        The length is a constant of the generated code.
        """
        calls = self.loads_several and segment.lanes.count == 1 and segment.vectors == 4 and length >= SHORT_RUN
        as_loop = length * (self._products(segment, pixels, 1, pixels) + 3)
        if not calls and as_loop <= MOST_UNROLLED:  # overlapping elements are loaded once
            elements = min(pixels * length, (pixels - 1) * step + length)
            return RUN_UNROLLED + self._products(segment, pixels, length, elements)
        start = RUN_CALLED if calls else RUN_INSTRUCTIONS + 2 * pixels
        return start + int(length * self.element_instructions(segment, pixels))

    def _products(self, segment: ChannelRange, pixels: int, length: int, elements: int) -> int:
        """Return the loads of elements and of `length` rows of weights, and the FMAs."""
        return elements + length * (segment.weights.load_instructions(segment.vectors) + pixels * segment.vectors)


def native_blocking(target: Target) -> Blocking:
    """Return blocks that fit the processor's registers: accumulators, one row of weights, one input element."""
    floats = target.instruction_set.floats
    vectors, pixels = target.block or floats.product
    return Blocking(
        lanes=native_lanes(target), vectors=vectors, pixels=pixels if target.optimize == "speed" else 1,
        loads_several=floats.loads_several, loop_instructions=floats.loop_instructions, adds_by_4=floats.adds_by_4,
        masks=target.optimize == "speed" and not target.least_flash,
    )  # fmt: skip


def product_blocks(operator: Operator, target: Target) -> tuple[Block, ...]:
    """Return (vectors, pixels) that `native_blocking` supports; none for small code, which has single pixels."""
    if target.optimize == "size":
        return ()
    return SCALAR_PRODUCTS if native_lanes(target).count == 1 else VECTOR_PRODUCTS


def weight_blocking(weight: np.ndarray, target: Target) -> Blocking:
    """Return the native blocking for constant weights, in the narrowest type that represents them."""
    return replace(native_blocking(target), weights=narrowest(weight))


@dataclass(frozen=True, kw_only=True)
class ChannelRange:
    """Output channels [begin, end) in blocks of `lanes` x `vectors`, and the type of their weights.

    The last vector of a single block may hold fewer channels than lanes.
    """

    begin: int
    end: int
    lanes: Lanes
    vectors: int
    weights: WeightType

    @property
    def width(self) -> int:
        return self.lanes.count * self.vectors

    @property
    def num_blocks(self) -> int:
        return -(-(self.end - self.begin) // self.width)

    @property
    def channels(self) -> int:
        """Channels of a block: its width without lanes that hold no channel."""
        return min(self.width, self.end - self.begin)

    def lanes_of(self, v: int) -> Lanes:
        """Return the lanes of vector v in memory."""
        live = self.channels - v * self.lanes.count
        return replace(self.lanes, live=live) if live < self.lanes.count else self.lanes

    @property
    def pairs_halves(self) -> bool:
        """True if weights of two vectors are interleaved in words, in the layout of tvm_ext_half_product.h."""
        return self.lanes.half and self.lanes.count > 1 and self.vectors == 2


def channel_ranges(num_channels: int, blocking: Blocking) -> list[ChannelRange]:
    """Return the ranges into which `num_channels` are split."""
    lanes, single = blocking.lanes, replace(blocking.lanes, count=1)
    whole = num_channels // blocking.width * blocking.width
    vectors, live = divmod(num_channels - whole, lanes.count)
    if live > 1 and blocking.masks and not lanes.half:  # a single channel takes fewer instructions as a single float
        vectors, live = vectors + 1, 0
    end = num_channels - live
    of_four = end + live // 4 * 4
    cuts = [
        (0, whole, lanes, blocking.vectors),
        (whole, end, lanes, vectors),
        (end, of_four, single, 4),
        (of_four, num_channels, single, live % 4),
    ]
    return [
        ChannelRange(begin=begin, end=end, lanes=lanes, vectors=vectors, weights=blocking.weights)
        for begin, end, lanes, vectors in cuts
        if end > begin
    ]


def padded(array: np.ndarray, blocking: Blocking) -> np.ndarray:
    """Return an array of output channels, padded with 0 for lanes of the last vector without a channel."""
    segment = channel_ranges(array.size, blocking)[-1]
    return np.pad(array, (0, segment.begin + segment.num_blocks * segment.width - array.size))


def lanes_finished(num_channels: int, finish: Finish, blocking: Blocking) -> list[Lanes]:
    """Return the widths of the epilogue: those of the ranges, or single floats if it has no vector form."""
    segments = channel_ranges(num_channels, blocking)
    return [segment.lanes if finish.fits(segment.lanes) else SCALAR for segment in segments]


def tile_headers(num_channels: int, blocking: Blocking, *kernels: str) -> tuple[str, ...]:
    """Return the headers of tiles for the lanes of the ranges.

    kernels: headers for the same lanes that include these.
    """
    segments = channel_ranges(num_channels, blocking)
    counts = sorted({segment.lanes.count for segment in segments})
    stems = (
        "",
        "tile_",
        *(f"{kernel}_" for kernel in kernels),
        *(["tile_narrow_"] if blocking.weights.is_narrow else []),
    )
    names = [f"tvm_ext_{stem}f32x{count}.h" for count in counts for stem in stems]
    names += [*blocking.lanes.includes, "tvm_ext_half_product.h"] if blocking.lanes.half else []
    return (*names, "tvm_ext_layer.h", *blocking.weights.headers(counts), *part_headers(segments))


def part_headers(segments: Sequence[ChannelRange]) -> tuple[str, ...]:
    """Return the headers that read and write vectors with fewer channels than lanes."""
    counts = [one.lanes.count for one in segments if one.channels < one.width]
    return tuple(name for count in counts for name in (f"tvm_ext_lanes_f32x{count}.h", "tvm_ext_layer.h"))


def pack(weight: np.ndarray, blocking: Blocking) -> np.ndarray:
    """Pack [K, ...] as block after block of [...][block's channels], in the ranges' order and the weights' type."""
    parts: list[np.ndarray] = []
    for segment in channel_ranges(weight.shape[0], blocking):
        rows = weight[segment.begin : segment.end]
        dead = segment.num_blocks * segment.width - rows.shape[0]
        rows = np.pad(rows, [(0, dead), *[(0, 0)] * (weight.ndim - 1)])
        blocks = rows.reshape(-1, segment.width, *weight.shape[1:])
        if segment.pairs_halves:
            blocks = blocks[:, np.arange(segment.width).reshape(2, -1).T.ravel()]
        parts.append(np.moveaxis(blocks, 1, -1).ravel())
    return blocking.weights.stored(np.concatenate(parts))


# C text of blocks of channels: loops over them, accumulators in registers, stores.


def over_channels(num_channels: int, blocking: Blocking, body: Callable[[ChannelRange], list[str]]) -> list[str]:
    """Return `body(segment)` with `k`, the block's first output channel, for every block of every segment."""
    lines: list[str] = []
    for segment in channel_ranges(num_channels, blocking):
        lines += loop("k", segment.end, body(segment), begin=segment.begin, step=segment.width)
    return lines


@dataclass(frozen=True, kw_only=True)
class Accumulators:
    """Accumulators of a block, by pixel p and vector v: variables sum<p><v>, or elements of an array.

    in_array: accumulators are `sums[pixels * vectors]`, which functions of tvm_ext_tile_f32x<lanes>.h fill.
    """

    segment: ChannelRange
    pixels: int
    in_array: bool = False

    def name(self, p: int, v: int) -> str:
        return f"sums[{p * self.segment.vectors + v}]" if self.in_array else f"sum{p}{v}"

    def declaration(self) -> str:
        """Return the definition of the array."""
        return f"{self.segment.lanes.ctype} sums[{self.pixels} * {self.segment.vectors}]; /* pixels by vectors */"

    def cells(self) -> Iterator[tuple[int, int]]:
        return ((p, v) for p in range(self.pixels) for v in range(self.segment.vectors))

    def channel(self, v: int) -> str:
        """Return the first channel of vector v."""
        return plus("k", v * self.segment.lanes.count)

    def start(self, array: str = "bias") -> list[str]:
        """Return declarations: every accumulator starts at its channel's element of an array, the bias."""
        ctype = self.segment.lanes.ctype
        return [f"{ctype} {self.name(p, v)} = {self._first(array, v)};" for p, v in self.cells()]

    def _first(self, array: str, v: int) -> str:
        return self.segment.lanes_of(v).load(array, self.channel(v))

    def begin(self, start: str = "bias") -> list[str]:
        """Return the array, whose accumulators start at their channels' elements of `start`."""
        if self.segment.channels < self.segment.width:
            return [self.declaration(), *(f"{self.name(p, v)} = {self._first(start, v)};" for p, v in self.cells())]
        call = f"tvm_ext_tile_f32x{self.segment.lanes.count}_start"
        return [self.declaration(), f"{call}(sums, &{start}[k], {self.pixels}, {self.segment.vectors});"]

    def add(self, x: str, step: str, weights: str, length: str) -> str:
        """Return a statement that adds products of `length` elements of each pixel, `step` apart, to the array."""
        count, kind = self.segment.lanes.count, self.segment.weights
        if self.segment.pairs_halves:
            return f"tvm_ext_half_product_add(sums, {x}, {step}, {weights}, {length}, {self.pixels});"
        sizes = f"{length}, {self.pixels}, {self.segment.vectors}"
        if kind.is_narrow:
            return f"tvm_ext_tile_narrow_f32x{count}_add(sums, {x}, {step}, {weights}, {kind.constant}, {sizes});"
        return f"tvm_ext_tile_f32x{count}_add(sums, {x}, {step}, {weights}, {sizes});"

    def store(self, finish: Finish, place: Callable[[int], str], residual: Callable[[int, int], str]) -> list[str]:
        """Return code that applies the epilogue to every accumulator and writes the result.

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
        """Return code for an epilogue without vector form:

        vectors go to an array, whose elements are finished one by one.
        """
        lanes, width, channels = self.segment.lanes, self.segment.width, self.segment.channels
        single = replace(lanes, count=1)

        def read(operand: Operand) -> str:
            if operand.kind == "input":
                return single.read(f"input{operand.index}", _sum(residual(operand.index, p), "k + j"))
            return f"channel{operand.index}[k + j]"

        stores = [lanes.store("sum", str(v * lanes.count), self.name(p, v)) for v in range(self.segment.vectors)]
        finished = single.write("output", _sum(place(p), "k + j"), finish.call("sum[j]", read))
        lines = [f"float sum[{width}] = {{0.0f}};", *stores, *loop("j", channels, [finished])]
        return ["{", block(lines), "}"]


def pixel_place(first: str, p: int, pitch: str) -> str:
    """Return the C expression of the first element of pixel p, if pixel 0 begins at `first`."""
    return first if p == 0 else f"{first} + {pitch}" if p == 1 else f"{first} + {p} * {pitch}"


def _sum(place: str, index: str) -> str:
    return f"{place} + {index}" if place else index
