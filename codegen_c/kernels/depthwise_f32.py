"""Depthwise conv2d, float32: every channel by itself, four channels of one output pixel at a time.

float32[N, H, W, C], float32[C, R, S, 1] -> float32[N, P, Q, C]. Each element starts at its bias and adds
products in the order r, s ascending; products outside the input are left out.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels import conv2d_f32
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.finish import Finish
from codegen_c.kernels.window import clip, offset, slot, spatial, tap_range
from codegen_c.operators import Conv2d
from codegen_c.text import block, plus, times

CHANNEL_BLOCK = 4


def is_depthwise(operator: Conv2d, target: Target) -> bool:
    """every input channel must be a group of its own with one output channel"""
    return operator.groups == operator.inputs[0].shape[3] == operator.output.shape[3]


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    finish = Finish(program=operator.finish)
    macs = operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]
    weights = np.ascontiguousarray(operator.weight[..., 0].transpose(1, 2, 0))
    body = _body(operator, stored, finish)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=conv2d_f32.parameters(finish), body=body, helpers=finish.helper()),
        reference=lambda inputs: conv2d_f32.reference(operator, inputs),
        constants=(("weights", weights), ("bias", operator.bias), *finish.constants()),
        macs=macs,
        instructions=macs * 5 + operator.output.num_elements * (6 + operator.finish.num_instructions),
        accumulation="bias, then r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output, len(finish.input_parameters())),
    )


def _body(operator: Conv2d, stored: StoredRows, finish: Finish) -> str:
    (_, height, columns, channels), out = operator.inputs[0].shape, operator.output.shape
    pixels = conv2d_f32.pixel_offsets(operator, stored, finish)
    full = channels // CHANNEL_BLOCK * CHANNEL_BLOCK
    lines = [*clip(1, operator.window, columns, "w", names=("left", "s_begin", "s_end")), *pixels]
    if full:
        tile = _tile(operator, stored, finish, CHANNEL_BLOCK)
        lines += [f"for (int32_t k = 0; k < {full}; k += {CHANNEL_BLOCK}) {{", block(tile), "}"]
    if channels > full:
        tile = _tile(operator, stored, finish, channels - full)
        lines += ["{", block([f"const int32_t k = {full};", *tile]), "}"]
    rows = clip(0, operator.window, height, "h", names=("top", "r_begin", "r_end"))
    return conv2d_f32.over_pixels(rows, lines, out)


def _tile(operator: Conv2d, stored: StoredRows, finish: Finish, width: int) -> list[str]:
    """`width` channels of one pixel, from channel k on."""
    window, (batch, height, columns, channels) = operator.window, operator.inputs[0].shape
    r_begin, r_end = tap_range(0, window, ("r_begin", "r_end"))
    s_begin, s_end = tap_range(1, window, ("s_begin", "s_end"))
    row = slot(offset({"top": 1, "r": window.dilation[0]}), stored.input(0))
    row = f"n * {height} + {row}" if batch > 1 else row
    column = offset({"left": 1, "s": window.dilation[1]})

    taps = [
        f"const float *x = &input[{times(f'{times(row, columns)} + {column}', channels)} + k];",
        f"const float *restrict f = &weights[{times(offset({'r': window.kernel[1], 's': 1}), channels)} + k];",
        *(f"sum{j} = TVM_EXT_FMA(x[{j}], f[{j}], sum{j});" for j in range(width)),
    ]
    return [
        *(f"float sum{j} = bias[{plus('k', j)}];" for j in range(width)),
        f"for (int32_t r = {r_begin}; r < {r_end}; ++r) {{",
        block([f"for (int32_t s = {s_begin}; s < {s_end}; ++s) {{", block(taps), "}"]),
        "}",
        *(f"output[{plus('pixel + k', j)}] = {conv2d_f32.finished(finish, j)};" for j in range(width)),
    ]


KERNEL = Kernel(name="depthwise_f32", operator=Conv2d, implement=implement, constraints=(is_depthwise,))
