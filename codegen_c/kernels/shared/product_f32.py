"""C text of a float matrix product with constant weights: rows of the left side by channels, in blocks of both.

Dense layers and 1x1 convolutions share it. Weights are packed by `blocking.pack`. Rows of float16 are widened into
scratch before their channels are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen_c.c_text.text import Compound, block, scaled, times
from codegen_c.kernels.contract import Parameter
from codegen_c.kernels.shared.blocking import (
    Accumulators,
    Blocking,
    ChannelRange,
    channel_ranges,
    over_channels,
    pixel_place,
)
from codegen_c.kernels.shared.lanes import Finish
from codegen_c.kernels.shared.window import Bound, over

WIDENED = Parameter(name="scratch", ctype="uint8_t", role="scratch")
"""Rows of float16 as floats, as many as are computed together."""
WIDENED_FLOATS = "float *const widened = (float *)(void *)scratch;"


def widened_bytes(depth: int, blocking: Blocking) -> int:
    """Return the scratch of a kernel for rows of `depth` elements; 0 for float32, which needs no widening."""
    return 4 * depth * blocking.pixels if blocking.lanes.half else 0


def over_rows(
    begin: Bound,
    end: Bound,
    shape: tuple[int, int],
    finish: Finish,
    blocking: Blocking,
    starts: Mapping[str, str] | None = None,
    *,
    multiple: int,
    pitch: int | None = None,
) -> list[str]:
    """Return code for rows [begin, end) of input[.., depth] -> output[.., channels]; shape: (depth, channels).

    multiple: a divisor of the number of rows; if blocks divide it, too, there is no code for single rows. The number of
    rows is `end` if `begin` is 0. starts: first row of `input`, `output` and residuals `input<i>`, if it is not 0.
    pitch: elements from one output row to the next; None: its channels.
    """
    starts, (depth, channels) = starts or {}, shape
    names = {"depth": depth, "pitch": pitch or channels, **({"channels": channels} if finish.residuals() else {})}
    lines = [f"const int32_t {name} = {number};" for name, number in names.items()]

    def rows(count: int) -> list[str]:
        return _rows(count, channels, finish, blocking, starts)

    at_once = 1 if begin == 0 and isinstance(end, int) and end < blocking.pixels else blocking.pixels
    if multiple % at_once == 0:
        return [*lines, *over("m", begin, end, rows(at_once), step=at_once)]
    whole = f"{end} - m" if begin != 0 else end
    return [
        *lines,
        f"int32_t m = {begin};",
        f"const int32_t whole = {end} - ({whole}) % {blocking.pixels};",
        f"for (; m < whole; m += {blocking.pixels}) {{",
        block(rows(blocking.pixels)),
        "}",
        *(line for count in _fewer(blocking) for line in _if_left(count, end, rows(count))),
        f"for (; m < {end}; ++m) {{",
        block(rows(1)),
        "}",
    ]


def _fewer(blocking: Blocking) -> range:
    """Return the numbers of rows for the rest after the full groups: for float16, whose images are split often."""
    return range(blocking.pixels - 1, 1, -1) if blocking.lanes.half else range(0)


def _if_left(count: int, end: Bound, rows: Sequence[str]) -> list[str]:
    return [f"if (m + {count} <= {end}) {{", block([*rows, f"m += {count};"]), "}"]


def instructions(num_rows: int, shape: tuple[int, int], finish: Finish, blocking: Blocking) -> int:
    """Return the modelled instructions: set-up of each block, loads, FMAs and the loop for each input element."""

    def group(rows: int) -> int:
        total = 10
        for segment in channel_ranges(shape[1], blocking):
            sums = rows * segment.vectors
            run = int(shape[0] * blocking.element_instructions(segment, rows))
            done = sums * (2 + blocking.lanes.access_instructions + finish.program.num_instructions)
            total += segment.num_blocks * (8 + run + done)
        return total + (rows * shape[0] if blocking.lanes.half else 0)

    total = 0
    for count in (blocking.pixels, *_fewer(blocking), 1):
        total += num_rows // count * group(count)
        num_rows %= count
    return total


def _rows(count: int, channels: int, finish: Finish, blocking: Blocking, starts: Mapping[str, str]) -> list[str]:
    """Return the code of `count` rows from m on, all channels."""

    def first(name: str) -> str:
        return Compound(f"{starts[name]} + m") if starts.get(name, "0") != "0" else "m"

    source = f"&input[{scaled(first('input'), 'depth')}]"
    rows = [f"const float *x = {source};"]
    if blocking.lanes.half:
        widens = f"tvm_ext_widen_halves(widened, {source}, {times('depth', count)});"
        rows = [WIDENED_FLOATS, widens, "const float *x = widened;"]
    rows.append(f"const int32_t row = {scaled(first('output'), 'pitch')};")
    rows += [f"const int32_t row{i} = {scaled(first(f'input{i}'), 'channels')};" for i in finish.residuals()]

    def residual(i: int, p: int) -> str:
        return pixel_place(f"row{i}", p, "channels")

    def tile(segment: ChannelRange) -> list[str]:
        sums = Accumulators(segment=segment, pixels=count, in_array=True)
        return [
            *sums.begin(),
            sums.add("x", "depth", "&weights[k * depth]", "depth"),
            *sums.store(finish, lambda p: pixel_place("row", p, "pitch"), residual),
        ]

    return [*rows, *over_channels(channels, blocking, tile)]
