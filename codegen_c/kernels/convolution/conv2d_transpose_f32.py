"""float32 transposed convolution over NHWC images, gathered: one output pixel, a block of channels at a time.

float32[N, H, W, C], float32[K, R, S, C] -> float32[N, P, Q, K]; what follows it element by element included.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import Compound, scaled, times
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import by_pixels, pixel_offsets, place, residual_place
from codegen_c.kernels.convolution.transposed import over_taps, rows_of, spread
from codegen_c.kernels.shared.blocking import ChannelRange, pack, tile_headers, weight_blocking
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.layer import LayerText
from codegen_c.kernels.shared.tile import Accumulators, over_channels
from codegen_c.kernels.shared.window import slot
from codegen_c.operators.kinds import Conv2dTranspose

TAP_INSTRUCTIONS = 14


def reference(operator: Conv2dTranspose, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    total = np.zeros(operator.output.shape)
    for r, s, where, x in spread(inputs[0], operator.window, operator.output.shape[1:3]):
        total[where] += np.einsum("nhwc,kc->nhwk", x.astype(np.float64), operator.weight[:, r, s].astype(np.float64))
    return [operator.finish.run((total + operator.bias).astype(np.float32), inputs)]


def implement(operator: Conv2dTranspose, target: Target, stored: StoredRows) -> Implementation:
    finish, blocking = Finish(program=operator.finish), weight_blocking(operator.weight, target)
    (_, kernel_rows, kernel_columns, depth), window = operator.weight.shape, operator.window
    macs = operator.inputs[0].num_elements * operator.weight[..., 0].size
    blocks = -(-operator.output.shape[3] // blocking.width)
    each = TAP_INSTRUCTIONS + depth * (4 + 2 * blocking.vectors)
    taps = operator.output.num_elements // operator.output.shape[3] * kernel_rows * kernel_columns
    taps //= window.strides[0] * window.strides[1]

    def tile(segment: ChannelRange) -> list[str]:
        return _tile(operator, stored, finish, segment)

    headers = tile_headers(operator.output.shape[3], blocking)
    body = [*pixel_offsets(operator, stored, finish), *over_channels(operator.output.shape[3], blocking, tile)]
    return Implementation(
        kernel=KERNEL.name,
        function=by_pixels(operator, finish, 1, lambda _: body, blocking, layer=LayerText(includes=headers)),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", pack(operator.weight, blocking)), ("bias", operator.bias), *finish.constants()),
        macs=macs,
        instructions=blocks * taps * each + operator.output.num_elements * (3 + operator.finish.num_instructions),
        accumulation="bias, then r, s, c ascending",
        spatial=rows_of(operator, len(finish.residuals())),
        pitched=True,
        row_pitched=True,
    )


def _tile(operator: Conv2dTranspose, stored: StoredRows, finish: Finish, segment: ChannelRange) -> list[str]:
    """One block of output channels of one pixel, from k on."""
    batch, height, columns, depth = operator.inputs[0].shape
    sums = Accumulators(segment=segment, pixels=1, in_array=True)
    row = Compound(f"n * {height} + i") if batch > 1 else slot("i", stored.input(0))
    ctype = segment.weights.ctype
    tap = [
        f"const float *x = &input[{scaled(Compound(f'{times(row, columns)} + j'), 'depth')}];",
        f"const {ctype} *f = &filter[(r * {operator.window.kernel[1]} + s) * {times('depth', segment.width)}];",
        sums.add("x", "0", "f", "depth"),
    ]
    return [
        f"const int32_t depth = {depth};",
        f"const {ctype} *filter = &weights[k * {times('depth', operator.weight[0, ..., 0].size)}];",
        *sums.begin(),
        *over_taps(operator.window, operator.inputs[0], tap),
        *sums.store(finish, place, residual_place),
    ]


KERNEL = Kernel(name="conv2d_transpose_f32", operator=Conv2dTranspose, implement=implement)
