"""Integer product with constant weights for Helium: four pixels by two output channels, and its factors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import Value, block
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared.float_factors import beginnings
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.requantize import Requantize, quantization, wrapped
from codegen_c.operators.kinds import Array

# Factors of one shift for all channels that give every sum of a layer the element of its exact factor.
#
# `Requantize` rounds sum * factor once or twice, and each channel's factor has its own shift. Vectors narrow by one
# shift, which is part of the instruction. An element grows with its sum, so two factors agree for all sums if each
# element begins at the same sum; each of these sums bounds the other factor's multiplier from one side. If the bounds
# leave a number, results are those of `Requantize`, bit for bit.

# An element is sum * multiplier >> PRODUCT_BITS, rounded by the shift, halves up.
PRODUCT_BITS = 31
# Order of trials: one shift for most layers of a network lets them share a function.
SHIFTS = (5, 6, 4, 7, 8, 3, 9, 10, 2, 11, 12, 13, 1, 14, 15, 16)


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowFactors:
    """Factors of one common shift. multipliers: int32[K], at least 0. shift: of the narrowing, 1 to 16."""

    multipliers: Array
    shift: int

    @classmethod
    def of(cls, requantize: Requantize, low: Array, high: Array) -> NarrowFactors | None:
        """Return factors for sums from low to high, int64[K] each; None if there are none.

        There are none if elements are clamped to other bounds than their type's, or if no multipliers agree.
        """
        limits = np.iinfo(requantize.output.dtype)
        if limits.bits != 8 or (requantize.low, requantize.high) != (limits.min, limits.max):
            return None
        begins = beginnings(requantize, low, high)
        if begins is None:
            return None
        elements = np.arange(limits.min + 1, limits.max + 1) - quantization(requantize.output).zero_point
        for shift in SHIFTS:
            bound = ((2 * elements - 1) << (PRODUCT_BITS + shift - 1))[:, None]
            multipliers = _multipliers(begins, low, high, bound)
            if multipliers is not None:
                return cls(multipliers=multipliers, shift=shift)
        return None


def _multipliers(begins: Array, low: Array, high: Array, bound: Array) -> Array | None:
    """Return int32[K] with sum * multiplier >= bound from an element's first sum on, and < bound before it.

    Returns None if some channel has no multiplier. bound: int64[elements, 1].
    """
    least, most = _bounds(begins, bound, begins <= high)
    before_least, before_most = _bounds(1 - begins, 1 - bound, begins > low)
    lower, upper = np.maximum(least, before_least), np.minimum(most, before_most)
    if (lower > upper).any():
        return None
    return ((lower + upper) // 2).astype(np.int32)


def _bounds(sums: Array, bound: Array, holds: Array) -> tuple[Array, Array]:
    """Return the least and most multiplier with sum * multiplier >= bound wherever `holds`; 1 to 0 for none."""
    positive, negative = holds & (sums > 0), holds & (sums < 0)
    divisor = np.where(sums == 0, 1, np.abs(sums))
    least = np.where(positive, -(-bound // divisor), 0).max(axis=0, initial=0)
    most = np.where(negative, -bound // divisor, (1 << PRODUCT_BITS) - 1).min(axis=0, initial=(1 << PRODUCT_BITS) - 1)
    never = (holds & (sums == 0) & (bound > 0)).any(axis=0)
    return np.where(never, 1, least), np.where(never, 0, most)


# Integer product with constant weights for Helium: four pixels by two output channels, 16 products at a time.
#
# The pixels are adjacent, so windows of more than one column share columns: for n taps, n + 3 vectors are read for four
# pixels. Eight sums stay in general registers; those of one channel become the lanes of a vector, which have one start
# and one multiplier. Two pairs of channels make four bytes of each pixel, which one store writes. The instructions of a
# layer are generated text; tvm_ext_helium_fours.h has its frame, and the same computation in plain C.

STEP = 16
PIXELS, BLOCK = 4, 4
MOST_STEPS = 24
"""Limit of the steps of 16 products in a block, all of which are unrolled."""
MOST_POINTERS = 4
# Limit of load offsets of bytes, and pointer increments.
MOST_OFFSET = 127
CALL_INSTRUCTIONS = 28
"""Modelled instructions of a call around its blocks: registers saved, addresses of results and inputs."""
ONE_CALL, ONE_BLOCK, ONE_STEP = 24, 17, 9
"""Modelled instructions of a single window: of the call, of four channels, of 16 products of each."""
PACKED = Parameter(name="packed", ctype="int8_t", role="constant")
_SUMS = (("r0", "r2", "r4", "r6"), ("r8", "r10", "r12", "lr"))
_INTERLEAVED = (0, 2, 1, 3)
_PARAMETERS = ("const int8_t *x", "int32_t row_bytes", "uint8_t *y", "const int8_t *restrict packed")


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
        flat = steps.reshape(channels // BLOCK, BLOCK, self.num_steps, STEP)[:, _INTERLEAVED, :, :]
        halves = flat.reshape(channels // BLOCK, 2, 2, self.num_steps, STEP).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(halves.reshape(channels // BLOCK, 2, self.num_steps * 2 * STEP))


@dataclass(frozen=True, kw_only=True, eq=False)
class FourPixels:
    """Product of windows and `channels` channels, a multiple of four.

    pitch: bytes from a pixel of the output to the next.
    """

    columns: Columns
    channels: int
    pitch: int
    factors: NarrowFactors
    zero_point: int
    is_unsigned: bool

    def constants(self, weight: Array, start: Array) -> tuple[tuple[str, Array], ...]:
        """Return blocks of four channels: weights, starts and multipliers of channels 0, 2, then 1, 3, and an end.

        The end holds the zero point and the number of remaining channels. weight: int8[K, runs, taps, bytes]. start:
        int64[K], taken modulo 2^32.
        """
        blocks = self.channels // BLOCK
        numbers = np.stack([np.broadcast_to(row, self.channels) for row in (wrapped(start), self.factors.multipliers)])
        pairs = numbers.reshape(2, blocks, BLOCK)[:, :, _INTERLEAVED].reshape(2, blocks, 2, 2).transpose(1, 2, 0, 3)
        halves = np.concatenate([self.columns.pack(weight), _bytes(pairs.reshape(blocks, 2, 4))], axis=2)
        ends = np.stack([np.full(blocks, self.zero_point), BLOCK * np.arange(blocks - 1, -1, -1)], axis=1)
        packed = np.concatenate([halves.reshape(blocks, -1), _bytes(ends)], axis=1)
        return (("packed", np.ascontiguousarray(packed)),)

    def members(self) -> dict[str, Value]:
        """Return a `tvm_ext_helium_fours`."""
        columns = self.columns
        return {
            "runs": columns.runs, "taps": columns.taps, "stride": columns.stride, "steps": columns.steps,
            "column_bytes": columns.column_bytes, "pitch": self.pitch, "shift": self.factors.shift,
            **({"is_unsigned": True} if self.is_unsigned else {}),
        }  # fmt: skip

    def one_function(self) -> str:
        """Return `$_one`, a tvm_ext_helium_group of the layer for a single window of one column."""
        shapes = f"{self.columns.steps}, {self.factors.shift}"
        body = ["(void)row_bytes;", f"TVM_EXT_HELIUM_ONE(&$_layer.fours, x, y, packed, {shapes});"]
        return apart("$_one", _PARAMETERS, body)

    @property
    def one_instructions(self) -> int:
        """Instructions of a call of `$_one`."""
        return ONE_CALL + self.channels // BLOCK * (self.columns.steps * ONE_STEP + ONE_BLOCK)

    def function(self) -> str:
        """Return `$_four`, a tvm_ext_helium_group of the layer."""
        pointers = [*self._pointers(), *["x"] * MOST_POINTERS][:MOST_POINTERS]
        lines = [*self._before(), *(line for lines in self._loop() for line in lines)]
        text = [f'"{line}\\n\\t"' for line in _together(lines)]
        places = ", ".join(pointers)
        call = [f"TVM_EXT_HELIUM_FOUR(&$_layer.fours, x, row_bytes, y, packed, {places},", block([*text[:-1]])]
        call += [block([f"{text[-1]});"])]
        return apart("$_four", _PARAMETERS, ["\n".join(call)])

    @property
    def instructions(self) -> int:
        """Instructions of a call: the whole text, and the code around it."""
        loop = sum(len(lines) for lines in self._loop())
        return CALL_INSTRUCTIONS + len(self._before()) + self.channels // BLOCK * (loop - 1)

    def _num_pointers(self) -> int:
        """Return the number of window pointers: for one column as few as loads reach from, otherwise one per row."""
        columns = self.columns
        if not columns.is_pixel:
            return columns.runs
        last = (columns.steps - 1) * STEP
        return next((n for n in (1, 2) if (PIXELS // n - 1) * columns.column_bytes + last <= MOST_OFFSET), PIXELS)

    def _pointers(self) -> list[str]:
        count, columns = self._num_pointers(), self.columns
        if columns.is_pixel:
            return [f"x + {i * PIXELS // count * columns.column_bytes}" if i else "x" for i in range(count)]
        return [f"x + ({r} * row_bytes)" if r else "x" for r in range(count)]

    def _pixel(self, pixel: int, step: int) -> tuple[int, int]:
        """Return the pointer and offset of a vector of a window of one column."""
        each = PIXELS // self._num_pointers()
        return pixel // each, pixel % each * self.columns.column_bytes + step * STEP

    def _before(self) -> list[str]:
        """Return loads of vectors that stay in registers for all blocks."""
        if not self.columns.is_pixel:
            return []
        kept = range(0 if self.columns.steps == 1 else 1, PIXELS)
        return [_load(pixel, *self._pixel(pixel, 0)) for pixel in kept]

    def _loop(self) -> tuple[list[str], ...]:
        """Return one block of four channels: both halves and the end. Its first line is a label."""
        dots = self._of_pixels() if self.columns.is_pixel else self._of_strip()
        # If the zero point is a type's least element, the other type clamps the results: to it that element is zero.
        is_flipped = self.zero_point == (128 if self.is_unsigned else -128)
        narrow = "vqmovun" if self.is_unsigned != is_flipped else "vqmovn"
        shifts = self.zero_point != 0 and not is_flipped
        end = [
            "ldrd r4, r6, [%[f]], #8",
            *(["vqadd.s16 q6, q6, r4", "vqadd.s16 q4, q4, r4"] if shifts else []),
            f"{narrow}b.s16 q6, q6", f"{narrow}t.s16 q6, q4",
            *(["vadd.i8 q6, q6, r4"] if is_flipped else []),
            "cmp r6, #0", "vstrw.32 q6, [%q[places], #4]!", "bne 1b",
        ]  # fmt: skip
        return ["1:"], dots, self._sums_in("q6"), dots, self._sums_in("q4"), end

    def _of_pixels(self) -> list[str]:
        """Return sums of windows of one column: all vectors of the first step but one are in registers."""
        columns, lines = self.columns, list[str]()
        moves = (columns.steps - 1) * STEP > MOST_OFFSET
        for step in range(columns.steps):
            lines += [_weights(4), _weights(5)]
            for pixel in range(PIXELS):
                register = pixel if step == 0 else 0
                if columns.steps > 1 and (step or pixel == 0):
                    is_next = moves and step > 0
                    lines.append(_load_next(0, pixel) if is_next else _load(0, *self._pixel(pixel, step)))
                lines += [_add(pixel, channel, register, first=step == 0) for channel in (0, 1)]
        if moves:
            lines += [f"sub %[x{p}], %[x{p}], #{(columns.steps - 1) * STEP}" for p in range(self._num_pointers())]
        return lines

    def _of_strip(self) -> list[str]:
        """Return sums of windows that share columns, row by row: a tap needs one more vector than the tap before it."""
        columns = self.columns
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
                        lines.append(_weights(4))
                        for pixel in range(PIXELS):
                            if tap == 0 or pixel == PIXELS - 1:
                                register = (tap + pixel) % 4
                                load = _load_first(register, run, advance) if moves else _load(register, run, place)
                                lines.append(load)
                                place += advance
                            lines.append(_add(pixel, 0, (tap + pixel) % 4, first=first))
                            lines += [_weights(5)] if pixel == 1 else []
                        lines += [_add(pixel, 1, (tap + pixel) % 4, first=first) for pixel in range(PIXELS)]
                        first = False
            if moves:
                lines.append(_move(run, -place))
        return lines

    def _sums_in(self, target: str) -> list[str]:
        """Return the sums of two channels as 16 bits in the even and odd lanes of a vector, without the zero point."""
        narrow = f"#{self.factors.shift}"
        return [
            "vmov q4[2], q4[0], r0, r4", "vmov q4[3], q4[1], r2, r6",
            "vmov q5[2], q5[0], r8, r12", "vmov q5[3], q5[1], r10, lr",
            "ldrd r0, r2, [%[f]], #8", "ldrd r4, r6, [%[f]], #8", "vadd.i32 q4, q4, r0", "vadd.i32 q5, q5, r2",
            "vqdmulh.s32 q4, q4, r4", "vqdmulh.s32 q5, q5, r6",
            f"vqrshrnb.s32 {target}, q4, {narrow}", f"vqrshrnt.s32 {target}, q5, {narrow}",
        ]  # fmt: skip


def _load(register: int, pointer: int, offset: int) -> str:
    return f"vldrb.u8 q{register}, [%[x{pointer}]{f', #{offset}' if offset else ''}]"


def _load_first(register: int, pointer: int, advance: int) -> str:
    """Return a load at the pointer, which then advances."""
    return f"vldrb.u8 q{register}, [%[x{pointer}]], #{advance}"


def _load_next(register: int, pointer: int) -> str:
    """Return a load one step after the pointer, which advances first."""
    return f"vldrb.u8 q{register}, [%[x{pointer}], #{STEP}]!"


def _weights(register: int) -> str:
    return f"vldrb.u8 q{register}, [%[f]], #{STEP}"


def _move(pointer: int, distance: int) -> str:
    return f"{'add' if distance > 0 else 'sub'} %[x{pointer}], %[x{pointer}], #{abs(distance)}"


def _add(pixel: int, channel: int, register: int, *, first: bool) -> str:
    return f"vmladav{'' if first else 'a'}.s8 {_SUMS[channel][pixel]}, q{register}, q{4 + channel}"


def _together(lines: Sequence[str]) -> list[str]:
    """Return the lines with two instructions each."""
    return ["\\n\\t".join(lines[i : i + 2]) for i in range(0, len(lines), 2)]


def _bytes(numbers: Array) -> Array:
    """Convert int[..., n] to int8[..., 4n]: 32 bits each, low bytes first."""
    return np.ascontiguousarray(numbers).astype("<i4").view(np.int8)
