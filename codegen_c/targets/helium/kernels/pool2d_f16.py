"""Kernel for max and average pooling of float16 with Helium: sixteen channels at a time, float32 inside.

float16[N, H, W, C] -> float16[N, P, Q, C]. NaN as in pool2d_f32. Average adds in the order r, s ascending, multiplies
by the reciprocal of the number of elements, and rounds once. Over a whole image, rows may come in parts: sums are a
separate float32[C].
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import block, float_literal
from codegen_c.kernels.contract import (
    Accumulating,
    Array,
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Passes,
    StoredRows,
    Target,
)
from codegen_c.kernels.convolution.conv_f32 import (
    by_pixels,
    input_place,
    input_sizes,
    parameters,
    pixel_offsets,
    place,
    residual_place,
)
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.pooling.pool2d_f32 import reference, window_holds_input
from codegen_c.kernels.shared.blocking import Accumulators, Blocking, ChannelRange, lanes_finished, over_channels
from codegen_c.kernels.shared.lanes import Finish
from codegen_c.kernels.shared.window import Bound, accumulated, clip, over, slot, spatial, tap_range
from codegen_c.operators.kinds import HalfPool2d, TensorType
from codegen_c.targets.helium.kernels.half_floats import LANES, finishes_in_vectors, rounded

BLOCKING = Blocking(lanes=LANES, vectors=4, pixels=1)


def implement(operator: HalfPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = Finish(program=operator.finish)
    made = Implementation(
        kernel=KERNEL.name,
        function=by_pixels(operator, finish, 1, lambda _: _pixel(operator, stored, finish), BLOCKING, constants=()),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        instructions=operator.output.num_elements * _instructions(operator) // LANES.count,
        passes=Passes(
            input=max(1.0, operator.output.num_elements * _num_taps(operator) / operator.inputs[0].num_elements)
        ),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output, len(finish.residuals())),
        accumulating=_accumulating(operator),
        pitched=True,
        row_pitched=True,
    )
    return rounded(made)


def _num_taps(operator: HalfPool2d) -> int:
    return operator.window.kernel[0] * operator.window.kernel[1]


def _instructions(operator: HalfPool2d) -> int:
    """Return the modelled instructions of a vector of results."""
    take = 3 if operator.method == "average" else 4
    return 12 + (take + 1) * _num_taps(operator) + operator.finish.num_instructions


def _pixel(operator: HalfPool2d, stored: StoredRows, finish: Finish) -> list[str]:
    """Return the code of all channels of one output pixel."""
    window, (_, height, columns, channels) = operator.window, operator.inputs[0].shape
    rows, taps_in_row = tap_range(0, window, ("r_begin", "r_end")), tap_range(1, window, ("s_begin", "s_end"))

    def channels_of(segment: ChannelRange) -> list[str]:
        sums = Accumulators(segment=segment, pixels=1)
        x = f"const {LANES.element} *x = &input[{input_place(operator, stored, 'left + s')} + k];"
        return [
            *_start(operator, sums),
            *over("r", *rows, over("s", *taps_in_row, [x, *_take(operator, sums)])),
            *_average(operator, sums),
            *sums.store(finish, place, residual_place),
        ]

    return [
        *clip(0, window, height, "h", names=("top", "r_begin", "r_end")),
        *clip(1, window, columns, "w", names=("left", "s_begin", "s_end")),
        *input_sizes(operator),
        *pixel_offsets(operator, stored, finish),
        *_share(operator, rows, taps_in_row),
        *over_channels(channels, BLOCKING, channels_of),
    ]


def _start(operator: HalfPool2d, sums: Accumulators) -> list[str]:
    lanes, first = sums.segment.lanes, float("-inf") if operator.method == "max" else 0.0
    return [f"{lanes.ctype} {sums.name(p, v)} = {lanes.number(first)};" for p, v in sums.cells()]


def _take(operator: HalfPool2d, sums: Accumulators) -> list[str]:
    """Return statements that add one more tap, whose channels begin at `x`."""
    lanes, lines = sums.segment.lanes, list[str]()
    for p, v in sums.cells():
        name, x = sums.name(p, v), lanes.read("x", str(v * lanes.count))
        if operator.method == "max":  # scalar code evaluates an operand twice
            lines.append(f"const {lanes.ctype} x{v} = {x};")
            x = f"x{v}"
        value = lanes.call("maximum", [x, name]) if operator.method == "max" else lanes.call("add", [name, x])
        lines.append(f"{name} = {value};")
    return lines


def _share(operator: HalfPool2d, rows: tuple[Bound, Bound], columns: tuple[Bound, Bound]) -> list[str]:
    """Return the definition of the weight of each element in an average."""
    if operator.method == "max":
        return []
    if operator.count_include_pad or not any(operator.window.padding):
        return [f"const float share = 1.0f / {float_literal(float(_num_taps(operator)))};"]
    return [f"const float share = 1.0f / (float)(({rows[1]} - {rows[0]}) * ({columns[1]} - {columns[0]}));"]


def _average(operator: HalfPool2d, sums: Accumulators) -> list[str]:
    if operator.method == "max":
        return []
    lanes = sums.segment.lanes
    share = "share" if lanes.count == 1 else f"{lanes.ctype}_splat(share)"
    return [f"{sums.name(p, v)} = {lanes.call('multiply', [sums.name(p, v), share])};" for p, v in sums.cells()]


def _accumulating(operator: HalfPool2d) -> Accumulating | None:
    """Return a pool over the whole image that takes its rows in parts; None for other pools."""
    if not qpool2d.is_global(operator):
        return None
    return Accumulating(
        row_counts=(operator.inputs[0].shape[1],), implement=lambda rows, stored: _by_rows(operator, stored)
    )


def _by_rows(operator: HalfPool2d, stored: StoredRows) -> Implementation:
    """Return a pool that keeps sums of all channels between calls; the last call finishes them."""
    finish, (_, rows, columns, channels) = Finish(program=operator.finish), operator.inputs[0].shape

    def channels_of(segment: ChannelRange) -> list[str]:
        sums, lanes = Accumulators(segment=segment, pixels=1), segment.lanes
        kept = [(sums.name(p, v), sums.channel(v)) for p, v in sums.cells()]
        row = f"&input[{slot('h', stored.input(0))} * {columns * channels} + w * {channels} + k]"
        taken = over("w", 0, columns, [f"const {lanes.element} *x = {row};", *_take(operator, sums)])
        return [
            *_start(operator, sums),
            "if (row_begin > 0) {",
            block(f"{name} = {lanes.load('sums', channel)};" for name, channel in kept),
            "}",
            *over("h", "row_begin", "row_end", taken),
            f"if (row_end < {rows}) {{",
            block(lanes.store("sums", channel, name) for name, channel in kept),
            "} else {",
            block([*_average(operator, sums), *sums.store(finish, lambda p: "", lambda i, p: "")]),
            "}",
        ]

    from_input, output, *others = parameters(finish, constants=(), element=LANES.element)
    lines = [*_share(operator, (0, rows), (0, columns)), *over_channels(channels, BLOCKING, channels_of)]
    whole = operator.inputs[0].num_elements + channels * _instructions(operator) // LANES.count
    made = Implementation(
        kernel=f"{KERNEL.name}_by_rows",
        function=CFunction(
            parameters=(from_input, output, Parameter(name="sums", ctype="float", role="output"), *others),
            body="\n".join(lines),
            helpers=finish.helper(*lanes_finished(channels, finish, BLOCKING)),
            includes=LANES.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        instructions=qpool2d.instructions(operator, whole),
        accumulation="r, s ascending",
        spatial=accumulated(rows),
        sums=TensorType(shape=(1, 1, 1, channels), dtype="float32"),
    )
    halves = rounded(made).reference

    def with_sums(inputs: list[Array]) -> list[Array]:
        return [*halves(inputs), _sums(operator, inputs[0])]

    return replace(made, reference=with_sums)


def _sums(operator: HalfPool2d, image: Array) -> Array:
    """Return the sums, or maxima, of each channel."""
    wide = image.astype(np.float32)
    return wide.max(axis=(1, 2), keepdims=True) if operator.method == "max" else wide.sum(axis=(1, 2), keepdims=True)


KERNEL = Kernel(
    name="pool2d_f16",
    title="Max and average pooling in float16, with float32 accumulators",
    operator=HalfPool2d,
    implement=implement,
    constraints=(window_holds_input, finishes_in_vectors),
)
