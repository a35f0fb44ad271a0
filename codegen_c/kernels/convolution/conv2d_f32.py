"""conv2d, float32: any stride, padding, dilation and groups; blocks of output pixels by output channels.

float32[N, H, W, C], float32[K, R, S, C / groups] -> float32[N, P, Q, K]. Each element starts at its bias and
adds products in the order r, s, c ascending; products outside the input are left out.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import implementation, input_row, pixel_offsets, places
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import SCALAR
from codegen_c.kernels.shared.tile import (
    Accumulators,
    Blocking,
    ChannelRange,
    channel_ranges,
    native_blocking,
    over_channels,
    pack,
)
from codegen_c.kernels.shared.window import (
    clip,
    num_taps,
    offset,
    over,
    tap_range,
)
from codegen_c.operators.kinds import Conv2d


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    finish, blocking = Finish(program=operator.finish), _blocking(operator, target)
    return implementation(
        KERNEL.name,
        operator,
        blocking,
        weights=pack(operator.weight, blocking),
        instructions=lambda pixels: _instructions(operator, blocking, pixels),
        inputs_a_product=lambda _: 1 / blocking.width,
        body=lambda pixels: _pixels(operator, stored, finish, blocking, pixels),
        accumulation="bias, then r, s, c ascending",
    )


def _blocking(operator: Conv2d, target: Target) -> Blocking:
    """The processor's own; with groups, blocks that never hold channels of two groups."""
    blocking = native_blocking(target)
    per_group = operator.output.shape[3] // operator.groups
    if operator.groups == 1 or per_group % blocking.width == 0:
        return blocking
    if per_group % blocking.lanes.count == 0:
        return replace(blocking, vectors=1)
    return replace(blocking, lanes=SCALAR, vectors=1)


def _is_one_run(operator: Conv2d) -> bool:
    """True where all taps of a kernel row are adjacent in the input, as they are in the weights."""
    return operator.window.dilation[1] == 1 and operator.groups == 1


def _instructions(operator: Conv2d, blocking: Blocking, pixels: int) -> int:
    """Modelled instructions of a group of pixels: set-up of each block, start of each run, loads, FMAs and the loop."""
    _, kernel_rows, kernel_columns, depth = operator.weight.shape
    runs, length = (kernel_rows, kernel_columns * depth)
    if not _is_one_run(operator):
        runs, length = kernel_rows * kernel_columns, depth
    total = 14
    for segment in channel_ranges(operator.output.shape[3], blocking):
        sums = pixels * segment.vectors
        run = 6 + 2 * pixels + length * (pixels + segment.vectors + sums + 3)
        finish = sums * (3 + operator.finish.num_instructions)
        total += (segment.end - segment.begin) // segment.width * (8 + runs * run + finish)
    return total


def _pixels(operator: Conv2d, stored: StoredRows, finish: Finish, blocking: Blocking, pixels: int) -> list[str]:
    """All channels of `pixels` output pixels from (h, w) on."""
    window, source = operator.window, operator.inputs[0].shape
    columns = [f"const int32_t left = {offset({'w': window.strides[1]})}{_minus(window.padding[1])};"]
    if pixels == 1:
        columns = clip(1, window, source[2], "w", names=("left", "s_begin", "s_end"))
    return [
        *clip(0, window, source[1], "h", names=("top", "r_begin", "r_end")),
        *columns,
        *pixel_offsets(operator, stored, finish),
        *over_channels(
            operator.output.shape[3], blocking, lambda segment: _tile(operator, stored, finish, segment, pixels)
        ),
    ]


def _minus(number: int) -> str:
    return f" - {number}" if number else ""


def _tile(operator: Conv2d, stored: StoredRows, finish: Finish, segment: ChannelRange, pixels: int) -> list[str]:
    """One block of output channels, from k on."""
    window, (_, _, columns, channels) = operator.window, operator.inputs[0].shape
    num_outputs, _, kernel_columns, depth = operator.weight.shape
    per_group = num_outputs // operator.groups
    group = f" + {times('k' if per_group == 1 else f'k / {per_group}', depth)}" if operator.groups > 1 else ""
    r_begin, r_end = tap_range(0, window, ("r_begin", "r_end"))
    s_begin, s_end = (0, kernel_columns) if pixels > 1 else tap_range(1, window, ("s_begin", "s_end"))
    if _is_one_run(operator):
        taken, start = num_taps(s_begin, s_end), s_begin
        first = offset({"left": 1, str(s_begin): int(s_begin != 0)})
        count = str(taken * depth) if isinstance(taken, int) else times(taken, depth)
    else:
        first, start, count = offset({"left": 1, "s": window.dilation[1]}), "s", str(depth)
    sums = Accumulators(segment=segment, pixels=pixels)
    first_tap = offset({"r": kernel_columns, str(start): int(start != 0)})
    step = window.strides[1] * channels
    source = times(f"{times(input_row(operator, stored), columns)} + {first}", channels)
    run = [
        f"const float *x0 = &input[{source}{group}];",
        *(f"const float *x{p} = x0 + {p * step};" for p in range(1, pixels)),
        f"const float *restrict f = &filter[{times(first_tap, depth * segment.width)}];",
        f"for (int32_t c = 0; c < {count}; ++c) {{",
        block([*sums.multiply(), f"f += {segment.width};"]),
        "}",
    ]
    if start == "s":
        run = over("s", s_begin, s_end, run)
    return [
        f"const float *restrict filter = &weights[k * {operator.weight[0].size}];",
        *sums.start(),
        *over("r", r_begin, r_end, run),
        *sums.store(finish, *places(operator.output.shape[3], stored)),
    ]


KERNEL = Kernel(name="conv2d_f32", operator=Conv2d, implement=implement)
