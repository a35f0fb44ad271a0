"""Transposed convolution of a QDQ chain over NHWC images, gathered: one output pixel, a block of channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, plus, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.transposed import over_taps, rows_of, spread
from codegen_c.kernels.shared.requantize import Products, Requantize, quantization, signed
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, over_channel_blocks, over_pixels, pack_blocks, slot
from codegen_c.operators.kinds import QConv2dTranspose

TAP_INSTRUCTIONS = 14


def reference(operator: QConv2dTranspose, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    total = np.zeros(operator.output.shape, dtype=np.int64)
    centred = inputs[0].astype(np.int64) - quantization(operator.inputs[0]).zero_point
    for r, s, where, x in spread(centred, operator.window, operator.output.shape[1:3]):
        total[where] += np.einsum("nhwc,kc->nhwk", x, operator.weight[:, r, s].astype(np.int64))
    return [qconv2d.requantize(operator).run(total + operator.bias)]


def implement(operator: QConv2dTranspose, target: Target, stored: StoredRows) -> Implementation:
    finish, sums = qconv2d.requantize(operator), _products(operator)
    macs = operator.inputs[0].num_elements * operator.weight[..., 0].size
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=qconv2d.parameters(operator, finish),
            body=_body(operator, stored, finish, sums),
            helpers=finish.helper(),
            includes=finish.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(
            ("weights", pack_blocks(operator.weight, CHANNEL_BLOCK)),
            ("bias", sums.bias),
            *finish.constants(),
        ),
        macs=macs,
        instructions=macs * (2 + 2 * CHANNEL_BLOCK) // CHANNEL_BLOCK
        + macs // operator.inputs[0].shape[3] // CHANNEL_BLOCK * TAP_INSTRUCTIONS
        + operator.output.num_elements * qconv2d.REQUANTIZE_INSTRUCTIONS,
        accumulation="bias, then r, s, c ascending",
        spatial=rows_of(operator),
        exact=True,
        pitched=True,
    )


def _products(operator: QConv2dTranspose) -> Products:
    """The zero point stays out of the sums: how many taps an element has depends on where it is."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=True)


def _body(operator: QConv2dTranspose, stored: StoredRows, finish: Requantize, sums: Products) -> str:
    """All channels of a pixel, in blocks and a tail, over all pixels."""
    channels = operator.output.shape[3]
    lines = [qconv2d.pixel_offset(operator.output, stored)]
    lines += over_channel_blocks(channels, lambda width: _tile(operator, stored, finish, sums, width))
    return over_pixels([], lines, operator.output.shape)


def _tile(operator: QConv2dTranspose, stored: StoredRows, finish: Requantize, sums: Products, width: int) -> list[str]:
    """`width` output channels of one pixel, from channel k on."""
    source = operator.inputs[0]
    batch, height, columns, depth = source.shape
    row = f"n * {height} + i" if batch > 1 else slot("i", stored.input(0))
    add = [f"const int32_t v = x[c]{signed(-sums.zero_point)};", *(f"sum{j} += v * f[{j}];" for j in range(width))]
    tap = [
        f"const {C_TYPES[source.dtype]} *x = &input[{times(f'{times(row, columns)} + j', depth)}];",
        f"const int8_t *restrict f = &filter[{times(f'r * {operator.window.kernel[1]} + s', depth * width)}];",
        f"for (int32_t c = 0; c < {depth}; ++c) {{",
        block([*add, f"f += {width};"]),
        "}",
    ]
    each = [plus("k", j) for j in range(width)]
    return [
        f"const int8_t *restrict filter = &weights[{times('k', operator.weight[0].size)}];",
        *(f"int32_t sum{j} = bias[{k}];" for j, k in enumerate(each)),
        *over_taps(operator.window, source, tap),
        *(f"output[pixel + {k}] = {finish.call(f'sum{j}', k)};" for j, k in enumerate(each)),
    ]


KERNEL = Kernel(
    name="qconv2d_transpose_i8",
    operator=QConv2dTranspose,
    implement=implement,
    constraints=qconv2d.CONSTRAINTS,
)
