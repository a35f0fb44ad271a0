"""Depthwise conv2d of a QDQ chain, integers only: every channel by itself, four of one output pixel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. A sum starts at its
bias and adds (x - zero point) * w in the order r, s ascending; products outside the input are left out, as
padding is a real zero. Either rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, plus, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.requantize import Products, Requantize
from codegen_c.kernels.shared.window import (
    CHANNEL_BLOCK,
    clip,
    offset,
    over,
    over_channel_blocks,
    over_pixels,
    spatial,
    tap_range,
    zero_point_of,
)
from codegen_c.operators.kinds import QConv2d


def is_depthwise(operator: QConv2d, target: Target) -> bool:
    """every input channel must be a group of its own with one output channel"""
    return operator.groups == operator.inputs[0].shape[3] == operator.output.shape[3]


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    finish, sums = qconv2d.requantize(operator), qconv2d.products(operator)
    macs = operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]
    per_mac = 4 if sums.zero_point else 3
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=qconv2d.parameters(operator, finish),
            body=_body(operator, stored, finish, sums),
            helpers=finish.helper(),
            includes=finish.includes,
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", pack(operator.weight)), ("bias", sums.bias), *finish.constants()),
        macs=macs,
        instructions=macs * per_mac
        + macs // CHANNEL_BLOCK * qconv2d.RUN_INSTRUCTIONS
        + operator.output.num_elements * qconv2d.REQUANTIZE_INSTRUCTIONS,
        passes=Passes.of_product(
            macs,
            operator.inputs[0].num_elements,
            operator.output.num_elements // operator.output.shape[3],
            pixels=1,
            channels=1,
        ),
        accumulation="bias, then r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        exact=True,
        pitched=True,
    )


def pack(weight: np.ndarray) -> np.ndarray:
    """[C, R, S, 1] -> [R, S, C]: channels side by side, as in the input."""
    return np.ascontiguousarray(weight[..., 0].transpose(1, 2, 0))


def _body(operator: QConv2d, stored: StoredRows, finish: Requantize, sums: Products) -> str:
    """All channels of a pixel, in blocks and a tail, over all pixels."""
    _, height, columns, channels = operator.inputs[0].shape
    lines = clip(1, operator.window, columns, "w", names=("left", "s_begin", "s_end"))
    lines += [qconv2d.pixel_offset(operator.output, stored)]
    lines += over_channel_blocks(channels, lambda width: _tile(operator, stored, finish, sums, width))
    rows = clip(0, operator.window, height, "h", names=("top", "r_begin", "r_end"))
    declared, _ = zero_point_of(sums.zero_point)
    return "\n".join([*declared, over_pixels(rows, lines, operator.output.shape)])


def _tile(operator: QConv2d, stored: StoredRows, finish: Requantize, sums: Products, width: int) -> list[str]:
    """`width` channels of one pixel, from channel k on."""
    window, source = operator.window, operator.inputs[0]
    columns, channels = source.shape[2:]
    r_begin, r_end = tap_range(0, window, ("r_begin", "r_end"))
    s_begin, s_end = tap_range(1, window, ("s_begin", "s_end"))
    column = offset({"left": 1, "s": window.dilation[1]})
    pixel = f"{times(qconv2d.input_row(source, window, stored), columns)} + {column}"
    _, taken = zero_point_of(sums.zero_point)
    activations = [f"(x[{j}]{taken})" if taken else f"x[{j}]" for j in range(width)]
    tap = [
        f"const {C_TYPES[source.dtype]} *x = &input[{times(pixel, channels)} + k];",
        f"const int8_t *restrict f = &weights[{times(offset({'r': window.kernel[1], 's': 1}), channels)} + k];",
        *(f"sum{j} += {activation} * f[{j}];" for j, activation in enumerate(activations)),
    ]
    each = [plus("k", j) for j in range(width)]
    return [
        *(f"int32_t sum{j} = bias[{k}];" for j, k in enumerate(each)),
        *over("r", r_begin, r_end, over("s", s_begin, s_end, tap)),
        *(f"output[pixel + {k}] = {finish.call(f'sum{j}', k)};" for j, k in enumerate(each)),
    ]


KERNEL = Kernel(
    name="qdepthwise_i8",
    operator=QConv2d,
    implement=implement,
    constraints=(is_depthwise, *qconv2d.CONSTRAINTS),
)
