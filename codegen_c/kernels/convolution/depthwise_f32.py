"""Kernel for float32 depthwise conv2d: every channel by itself, in blocks of output pixels by channels.

float32[N, H, W, C], float32[C, R, S, 1] -> float32[N, P, Q, C]. Each element starts at its bias and adds products in
the order r, s ascending; products outside the input are skipped. Pixels computed together load each input element once,
however many windows contain it.

Loops over a window's columns are unrolled in generated text. As inline functions of a header, in three variants, these
layers took from 0.4 % fewer to 1.7 % more instructions on a Cortex-M4 (MCUNet-5fps), and from 0.6 % fewer to 10 % more
on a Cortex-M55 (4 % more in MobileNetV2-0.35, where GCC 12 spills vectors); compiling took 2.5 times as long.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import loop, times
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import (
    WindowCost,
    implementation,
    inner_columns,
    input_place,
    input_sizes,
    pixel_offsets,
    place,
    residual_place,
)
from codegen_c.kernels.measurements import Block
from codegen_c.kernels.shared.blocking import (
    Accumulators,
    Blocking,
    ChannelRange,
    channel_ranges,
    native_blocking,
    over_channels,
    part_headers,
)
from codegen_c.kernels.shared.lanes import Finish, native_lanes
from codegen_c.kernels.shared.layer import LayerText
from codegen_c.kernels.shared.narrow_weights import narrowest
from codegen_c.kernels.shared.window import clip, offset, over, tap_range
from codegen_c.operators.kinds import Conv2d

MOST_UNROLLED = 48
SCALAR_BLOCKS: tuple[Block, ...] = ((1, 4), (1, 6), (2, 3), (2, 4), (2, 6), (3, 4))
VECTOR_BLOCKS: tuple[Block, ...] = ((1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (2, 2))
"""(vectors, pixels) whose accumulators fit the registers, without lanes and with them."""
# Instructions beside loads, FMAs and the epilogue, in the disassembly of GCC 12 for a Cortex-M4: to clip the window of
# a pixel, and its addresses; to count blocks of channels and advance four pointers; to begin a row of the window of a
# group of pixels, and of a single pixel, whose addresses are on the stack, or whose few taps are unrolled.
PIXEL_INSTRUCTIONS, BLOCK_INSTRUCTIONS, ROW_OF_GROUP = 30, 9, 7
ROW_ALONE, FEW_TAPS_ROW, FEW_TAPS = 16, 2, 9


def is_depthwise(operator: Conv2d, target: Target) -> bool:
    """every input channel must be a group of its own with one output channel"""
    return operator.groups == operator.inputs[0].shape[3] == operator.output.shape[3]


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return by_channels(KERNEL.name, operator, depthwise_blocking(operator, target), stored)


def by_channels(kernel: str, operator: Conv2d, blocking: Blocking, stored: StoredRows) -> Implementation:
    """Return the kernel for activations of the element type of the blocking's lanes."""
    finish = Finish(program=operator.finish)
    return implementation(
        kernel,
        operator,
        blocking,
        weights=blocking.weights.stored(np.ascontiguousarray(operator.weight[..., 0].transpose(1, 2, 0))),
        bias=operator.bias,
        cost=lambda pixels: _cost(operator, blocking, pixels),
        inputs_a_product=lambda pixels: len(_columns_read(operator, pixels)) / (pixels * operator.window.kernel[1]),
        body=lambda pixels, _: _pixels(operator, stored, finish, blocking, pixels),
        accumulation="bias, then r, s ascending",
        layer=lambda _: LayerText(includes=_headers(operator, blocking)),
    )


def _headers(operator: Conv2d, blocking: Blocking) -> tuple[str, ...]:
    ranges = channel_ranges(operator.output.shape[3], blocking)
    return (*blocking.weights.headers(segment.lanes.count for segment in ranges), *part_headers(ranges))


def depthwise_blocking(operator: Conv2d, target: Target) -> Blocking:
    """Return a blocking with as many pixels as fit the registers beside a row of weights."""
    vectors, pixels = target.block or target.instruction_set.floats.depthwise
    if target.optimize == "size" or operator.window.kernel[1] * pixels > MOST_UNROLLED:
        pixels = 1
    floats = target.instruction_set.floats
    blocking, weights = native_blocking(target), narrowest(operator.weight)
    live = operator.output.shape[3] % blocking.lanes.count
    masks = blocking.masks and not weights.is_narrow and live > floats.part_instructions
    return replace(
        blocking, vectors=vectors, pixels=pixels, weights=weights, masks=masks,
        offset_bytes=floats.offset_bytes, spills=floats.spills,
    )  # fmt: skip


def blocks(operator: Conv2d, target: Target) -> tuple[Block, ...]:
    """Return (vectors, pixels) that `depthwise_blocking` supports; none for small code, which has single pixels."""
    if target.optimize == "size":
        return ()
    return SCALAR_BLOCKS if native_lanes(target).count == 1 else VECTOR_BLOCKS


def _columns_read(operator: Conv2d, pixels: int) -> list[int]:
    """Return the input columns, relative to the first one, that windows of adjacent pixels read; ascending."""
    window = operator.window
    return sorted(
        {p * window.strides[1] + s * window.dilation[1] for p in range(pixels) for s in range(window.kernel[1])}
    )


def _cost(operator: Conv2d, blocking: Blocking, pixels: int) -> WindowCost:
    """Return the modelled cost of a group of pixels:

    set-up of each block, its rows, loads and FMAs, and the epilogue.
    """
    access, (kernel_rows, columns) = blocking.lanes.access_instructions, operator.window.kernel
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])
    is_unrolled = kernel_rows * columns <= FEW_TAPS and begin <= 1 and end - begin > 1
    channel_bytes = 4 * operator.output.shape[3]
    far = blocking.offset_bytes and channel_bytes > blocking.offset_bytes
    read = _columns_read(operator, pixels)
    addresses = sum(1 for column in (*read, *range(columns)) if column * channel_bytes > blocking.offset_bytes > 0)
    whole, row, tap = PIXEL_INSTRUCTIONS, 0, 0
    for segment in channel_ranges(operator.output.shape[3], blocking):
        blocks = segment.num_blocks
        finish = 1 + access + operator.finish.num_instructions
        whole += blocks * (BLOCK_INSTRUCTIONS + pixels * segment.vectors * finish)
        if pixels == 1:
            row += blocks * (FEW_TAPS_ROW if is_unrolled else ROW_ALONE)
            tap += blocks * (2 + 2 * far + segment.vectors * (access + blocking.weights.load_instructions(1) + 1))
        else:
            loads = len(read) * access + blocking.weights.load_instructions(columns)
            products = pixels * columns * (1 + blocking.spills)
            row += blocks * (ROW_OF_GROUP + addresses + segment.vectors * (loads + products))
    return WindowCost(whole=whole, row=row, tap=tap)


def _pixels(operator: Conv2d, stored: StoredRows, finish: Finish, blocking: Blocking, pixels: int) -> list[str]:
    """Return the code of all channels of `pixels` output pixels from (h, w) on."""
    window, source = operator.window, operator.inputs[0].shape
    first = offset({"w": window.strides[1]})
    columns = [
        f"const int32_t left = {first} - {window.padding[1]};"
        if window.padding[1]
        else f"const int32_t left = {first};"
    ]
    if pixels == 1:
        columns = clip(1, window, source[2], "w", names=("left", "s_begin", "s_end"))
    tile = _one_pixel if pixels == 1 else _unrolled
    return [
        *clip(0, window, source[1], "h", names=("top", "r_begin", "r_end")),
        *columns,
        *input_sizes(operator),
        *pixel_offsets(operator, stored, finish),
        *over_channels(source[3], blocking, lambda segment: tile(operator, stored, finish, segment, pixels)),
    ]


def _one_pixel(operator: Conv2d, stored: StoredRows, finish: Finish, segment: ChannelRange, pixels: int) -> list[str]:
    """Return the code of one pixel, with its window clipped: a loop over taps."""
    window, sums, kind = operator.window, Accumulators(segment=segment, pixels=1), segment.lanes
    s_begin, s_end = tap_range(1, window, ("s_begin", "s_end"))
    column, tap = offset({"left": 1, "s": window.dilation[1]}), offset({"r": window.kernel[1], "s": 1})
    taps = [
        f"const {kind.element} *x = &input[{input_place(operator, stored, column)} + k];",
        f"const {segment.weights.ctype} *restrict f = &weights[({tap}) * input_channels + k];",
    ]
    for v in range(segment.vectors):
        lanes, at = segment.lanes_of(v), str(v * kind.count)
        taps.append(f"sum0{v} = {lanes.fma(lanes.read('x', at), segment.weights.load(lanes, 'f', at), f'sum0{v}')};")
    inner = loop("s", s_end, taps, begin=s_begin)
    return _rows(operator, stored, sums, inner, finish)


def _unrolled(operator: Conv2d, stored: StoredRows, finish: Finish, segment: ChannelRange, pixels: int) -> list[str]:
    """Return the code of several pixels inside the input: one kernel row at a time, each input element loaded once."""
    window, channels = operator.window, operator.inputs[0].shape[3]
    sums, kind = Accumulators(segment=segment, pixels=pixels), segment.lanes
    row = [
        f"const {kind.element} *x = &input[{input_place(operator, stored, 'left')} + k];",
        f"const {segment.weights.ctype} *restrict f = &weights[r * {times('input_channels', window.kernel[1])} + k];",
    ]
    for v in range(segment.vectors):
        for s in range(window.kernel[1]):
            weight = segment.weights.load(segment.lanes_of(v), "f", str(s * channels + v * kind.count))
            row.append(f"const {kind.ctype} f{s}_{v} = {weight};")
    for v in range(segment.vectors):
        lanes = segment.lanes_of(v)
        for column in _columns_read(operator, pixels):
            row.append(
                f"const {kind.ctype} x{column}_{v} = {lanes.read('x', str(column * channels + v * kind.count))};"
            )
            for p in range(pixels):
                s, rest = divmod(column - p * window.strides[1], window.dilation[1])
                if rest == 0 and 0 <= s < window.kernel[1]:
                    row.append(f"sum{p}{v} = {lanes.fma(f'x{column}_{v}', f'f{s}_{v}', f'sum{p}{v}')};")
    return _rows(operator, stored, sums, row, finish)


def _rows(operator: Conv2d, stored: StoredRows, sums: Accumulators, row: list[str], finish: Finish) -> list[str]:
    r_begin, r_end = tap_range(0, operator.window, ("r_begin", "r_end"))
    return [
        *sums.start(),
        *over("r", r_begin, r_end, row),
        *sums.store(finish, place, residual_place),
    ]


KERNEL = Kernel(
    name="depthwise_f32",
    title="Depthwise convolution in float32, in blocks of output pixels by channels",
    operator=Conv2d,
    implement=implement,
    constraints=(is_depthwise,),
    blocks=blocks,
)
