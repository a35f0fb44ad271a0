"""Loop of the Helium product of four pixels and two output channels at a time: its instructions and their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from codegen_c.operators.kinds import Array
from codegen_c.targets.helium.kernels.interleave import cycles, interleaved

# The pixels are adjacent, so windows of more than one column share columns: for n taps, n + 3 vectors are read for four
# pixels. Eight accumulators stay in general registers; those of one channel become the lanes of a vector, which have
# one start and one factor. Two pairs of channels make four bytes of each pixel, which one store writes.

STEP = 16
PIXELS, BLOCK = 4, 4
MOST_STEPS = 40
"""Limit of the steps of 16 products in a block, all of which are unrolled."""
MOST_POINTERS = 4
# Limit of load offsets of bytes, and pointer increments.
MOST_OFFSET = 127
_SUMS = (("r0", "r2", "r4", "r6"), ("r8", "r10", "r12", "lr"))


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Windows of four adjacent pixels: `runs` rows of `taps` columns, each `column_bytes` apart.

    stride: columns from a pixel to the next. steps: vectors in a column; weights after its end are zero.
    """

    runs: int
    taps: int
    stride: int
    column_bytes: int
    steps: int

    @property
    def is_pixel(self) -> bool:
        """True for windows of one column each, which are contiguous and share nothing."""
        return self.runs == self.taps == self.stride == 1

    @property
    def num_steps(self) -> int:
        return self.runs * self.taps * self.steps

    def phases(self) -> Iterator[range]:
        """Yield taps whose columns differ by pixel distances only, in the order of the weights."""
        for phase in range(min(self.stride, self.taps)):
            yield range(phase, self.taps, self.stride)

    def fits(self) -> bool:
        """Return True if loads reach all columns and blocks are not too long."""
        reach = self.is_pixel or self.stride * self.column_bytes <= MOST_OFFSET
        return reach and self.num_steps <= MOST_STEPS and self.runs <= MOST_POINTERS

    def num_pointers(self) -> int:
        """Return the number of window pointers: for one column as few as loads reach from, otherwise one per row."""
        if not self.is_pixel:
            return self.runs
        last = (self.steps - 1) * STEP
        return next((n for n in (1, 2) if (PIXELS // n - 1) * self.column_bytes + last <= MOST_OFFSET), PIXELS)

    def pixel(self, pixel: int, step: int) -> tuple[int, int]:
        """Return the pointer and offset of a vector of a window of one column."""
        each = PIXELS // self.num_pointers()
        return pixel // each, pixel % each * self.column_bytes + step * STEP

    def pack(self, weight: Array) -> Array:
        """Pack int8[K, runs, taps, bytes] as int8[K / 4, 2, steps * 2 * 16]:

        two channels alternate, in the order of steps.
        """
        channels, full = weight.shape[0], self.steps * STEP
        deep = np.zeros((*weight.shape[:3], full), dtype=np.int8)
        deep[..., : weight.shape[3]] = weight
        order = [tap for phase in self.phases() for tap in phase]
        # Phases are the inner order within steps.
        steps = deep[:, :, order].reshape(channels, self.runs, self.taps, self.steps, STEP).transpose(0, 1, 3, 2, 4)
        flat = steps.reshape(channels // BLOCK, BLOCK, self.num_steps, STEP)[:, INTERLEAVED, :, :]
        halves = flat.reshape(channels // BLOCK, 2, 2, self.num_steps, STEP).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(halves.reshape(channels // BLOCK, 2, self.num_steps * 2 * STEP))


INTERLEAVED = (0, 2, 1, 3)
"""Channels of a block in the order in which they are packed and computed."""


@dataclass(frozen=True, kw_only=True)
class FourLoop:
    """A loop over blocks of four channels.

    shift: of all channels; 0 for two roundings and a shift of each channel. is_signed: halves below zero are then
    rounded down. adds: the zero point is added to elements of 16 bits. is_flipped: it is added to those of 8 bits, of
    the other type. narrow: instruction from 16 to 8 bits.
    """

    columns: Columns
    shift: int
    is_signed: bool
    adds: bool
    is_flipped: bool
    narrow: str

    @property
    def factor_bytes(self) -> int:
        """Bytes of the factors of two channels: starts, multipliers and perhaps shifts."""
        return 16 if self.shift else 24


@dataclass(frozen=True, kw_only=True)
class Text:
    """Instructions ahead of the loop, and of one block."""

    ahead: tuple[str, ...]
    block: tuple[str, ...]


@cache
def fastest(loop: FourLoop) -> Text:
    """Return the loop in the fewest cycles.

    The weights of a half are a run of vectors, which a pointer passes; factors are read at a distance from it.
    """
    columns, texts = loop.columns, list[Text]()
    for kept in _numbers_kept(columns):
        ahead = tuple(_load(pixel, *columns.pixel(pixel, 0)) for pixel in range(PIXELS - kept, PIXELS))
        block = _addressed(interleaved(_block(loop, kept)), _block_bytes(loop))
        texts.append(Text(ahead=ahead, block=tuple(block)))
    return min(texts, key=lambda text: cycles(text.block))


def _numbers_kept(columns: Columns) -> tuple[int, ...]:
    """Return the numbers of pixels to try whose first vectors stay in registers for all blocks; the last pixels do.

    The others take turns in the remaining registers. If a pixel is one vector, all four are in registers before results
    are written, which may lie in the memory of the input.
    """
    if not columns.is_pixel:
        return (0,)
    return (PIXELS,) if columns.steps == 1 else (3, 2)


def _half_bytes(loop: FourLoop) -> int:
    return 2 * STEP * loop.columns.num_steps + loop.factor_bytes


def _block_bytes(loop: FourLoop) -> int:
    return 2 * _half_bytes(loop) + 8


def _block(loop: FourLoop, kept: int) -> list[str]:
    """Return the instructions of one block of four channels in a plain order."""
    columns, half = loop.columns, _half_bytes(loop)
    first, second = (
        _of_pixels(columns, at, kept) if columns.is_pixel else _of_strip(columns, at) for at in (0, half)
    )  # fmt: skip
    end = 2 * half
    return [
        *first, *_sums(loop, half - loop.factor_bytes, "q6"), *second, *_sums(loop, end - loop.factor_bytes, "q4"),
        f"ldrd r4, r6, [%[f]@{end}]",
        *(["vqadd.s16 q6, q6, r4", "vqadd.s16 q4, q4, r4"] if loop.adds else []),
        f"{loop.narrow}b.s16 q6, q6", f"{loop.narrow}t.s16 q6, q4",
        *(["vadd.i8 q6, q6, r4"] if loop.is_flipped else []),
        "cmp r6, #0", "vstrw.32 q6, [%q[places], #4]!",
    ]  # fmt: skip


def _of_pixels(columns: Columns, at: int, kept: int) -> list[str]:
    """Return accumulators of windows of one column. at: bytes from the begin of the block to the weights."""
    lines, loads = list[str](), 0
    moves = (columns.steps - 1) * STEP > MOST_OFFSET
    for step in range(columns.steps):
        lines += [_weights(4, at + 2 * step * STEP), _weights(5, at + (2 * step + 1) * STEP)]
        for pixel in range(PIXELS):
            register = pixel
            if step or pixel < PIXELS - kept:
                register = loads % (PIXELS - kept)
                is_next = moves and step > 0
                lines.append(_load_next(register, pixel) if is_next else _load(register, *columns.pixel(pixel, step)))
                loads += 1
            lines += [_add(pixel, channel, register, first=step == 0) for channel in (0, 1)]
    if moves:
        lines += [f"sub %[x{p}], %[x{p}], #{(columns.steps - 1) * STEP}" for p in range(columns.num_pointers())]
    return lines


def _of_strip(columns: Columns, at: int) -> list[str]:
    """Return accumulators of windows that share columns, row by row: a tap needs one more vector than the tap before.

    at: bytes from the begin of the block to the weights.
    """
    advance = columns.stride * columns.column_bytes
    last = ((PIXELS - 1) * columns.stride + columns.taps - 1) * columns.column_bytes + (columns.steps - 1) * STEP
    moves = last > MOST_OFFSET
    lines, first = list[str](), True
    for run in range(columns.runs):
        place = 0
        for step in range(columns.steps):
            for phase in columns.phases():
                begin = phase[0] * columns.column_bytes + step * STEP
                if moves and begin != place:
                    lines.append(_move(run, begin - place))
                place = begin
                for tap in range(len(phase)):
                    lines.append(_weights(4, at))
                    for pixel in range(PIXELS):
                        if tap == 0 or pixel == PIXELS - 1:
                            register = (tap + pixel) % 4
                            load = _load_first(register, run, advance) if moves else _load(register, run, place)
                            lines.append(load)
                            place += advance
                        lines.append(_add(pixel, 0, (tap + pixel) % 4, first=first))
                        lines += [_weights(5, at + STEP)] if pixel == 1 else []
                    lines += [_add(pixel, 1, (tap + pixel) % 4, first=first) for pixel in range(PIXELS)]
                    first = False
                    at += 2 * STEP
        if moves:
            lines.append(_move(run, -place))
    return lines


def _sums(loop: FourLoop, at: int, target: str) -> list[str]:
    """Return accumulators of two channels as 16 bits in even and odd lanes of a vector, without the zero point.

    at: bytes from the begin of the block to the factors.
    """
    pairs = (("r0", "r2"), ("r4", "r6"), ("r8", "r10"))[: loop.factor_bytes // 8]
    lines = [
        "vmov q4[2], q4[0], r0, r4", "vmov q4[3], q4[1], r2, r6",
        "vmov q5[2], q5[0], r8, r12", "vmov q5[3], q5[1], r10, lr",
        *(f"ldrd {a}, {b}, [%[f]@{at + 8 * row}]" for row, (a, b) in enumerate(pairs)),
        "vadd.i32 q4, q4, r0", "vadd.i32 q5, q5, r2",
    ]  # fmt: skip
    if loop.shift:
        return [
            *lines, "vqdmulh.s32 q4, q4, r4", "vqdmulh.s32 q5, q5, r6",
            f"vqrshrnb.s32 {target}, q4, #{loop.shift}", f"vqrshrnt.s32 {target}, q5, #{loop.shift}",
        ]  # fmt: skip
    # Twice a product times one, its high word, is -1 for negative products and otherwise 0.
    lower = ["mov r12, #1", "vqdmlah.s32 q4, q4, r12", "vqdmlah.s32 q5, q5, r12"]
    return [
        *lines, "vqrdmulh.s32 q4, q4, r4", "vqrdmulh.s32 q5, q5, r6", *(lower if loop.is_signed else []),
        "vrshl.s32 q4, r8", "vrshl.s32 q5, r10", f"vqmovnb.s32 {target}, q4", f"vqmovnt.s32 {target}, q5",
    ]  # fmt: skip


def _addressed(lines: Sequence[str], block_bytes: int) -> list[str]:
    """Return the lines with addresses relative to the pointer to weights, which moves from vector to vector.

    It ends at the next block. Factors follow the weights of their half closely, so that offsets are short.
    """
    order = [int(line.partition("@")[2][:-1]) for line in lines if line.startswith("vldrb") and "@" in line]
    after = dict(zip(order, [*order[1:], block_bytes], strict=True))
    here, found = 0, list[str]()
    for line in lines:
        head, has_address, rest = line.partition("@")
        at = int(rest[:-1]) if has_address else 0
        if has_address and line.startswith("vldrb"):
            found.append(f"{head}], #{after[at] - at}")
            here = after[at]
        else:
            found.append(f"{head}, #{at - here}]" if has_address else line)
    return found


def _load(register: int, pointer: int, offset: int) -> str:
    return f"vldrb.u8 q{register}, [%[x{pointer}]{f', #{offset}' if offset else ''}]"


def _load_first(register: int, pointer: int, advance: int) -> str:
    """Return a load at the pointer, which then advances."""
    return f"vldrb.u8 q{register}, [%[x{pointer}]], #{advance}"


def _load_next(register: int, pointer: int) -> str:
    """Return a load one step after the pointer, which advances first."""
    return f"vldrb.u8 q{register}, [%[x{pointer}], #{STEP}]!"


def _weights(register: int, at: int) -> str:
    """Return a load of a vector of weights. at: bytes from the begin of the block, for `_addressed`."""
    return f"vldrb.u8 q{register}, [%[f]@{at}]"


def _move(pointer: int, distance: int) -> str:
    return f"{'add' if distance > 0 else 'sub'} %[x{pointer}], %[x{pointer}], #{abs(distance)}"


def _add(pixel: int, channel: int, register: int, *, first: bool) -> str:
    return f"vmladav{'' if first else 'a'}.s8 {_SUMS[channel][pixel]}, q{register}, q{4 + channel}"
