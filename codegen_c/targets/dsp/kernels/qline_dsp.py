"""conv2d of a QDQ chain by Winograd's F(4, 3) and F(2, 5) along one axis, by the DSP extension: stride 1.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], R or S 3 or 5, sums in int32. Six products
give four outputs of three taps, or two of five, instead of twelve and ten: one-dimensional convolutions, windows of 1
by 3, 3 by 1, 5 by 5. Lines of a window that lie side by side are summed as if they were channels:
tvm_ext_dsp_winograd_line.h has the matrices. Weights take four times their bytes for three taps, 12 / 5 for five.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.shared import winograd_line
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.dsp.kernels import winograd_dsp

PIXEL_INSTRUCTIONS, FOUR_INSTRUCTIONS, WORD_INSTRUCTIONS = 10, 9, 6
"""Modelled instructions of one pixel that is copied, or of padding: by fours of words, and words that these leave."""


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    window, transformed = operator.window, winograd_line.transformed(operator)
    is_upright = winograd_line.axis(window) == winograd_line.ROWS
    depth, outputs = transformed.shape[2], winograd_line.outputs(window)
    fours, words = divmod(operator.weight.shape[3] // 4, 4)
    copied = PIXEL_INSTRUCTIONS + FOUR_INSTRUCTIONS * fours + WORD_INSTRUCTIONS * words
    form = winograd_dsp.Tiles(
        kernel=KERNEL.name,
        header="tvm_ext_dsp_winograd_line.h",
        prefix="tvm_ext_dsp_line",
        places=winograd_line.PLACES,
        pixels=winograd_line.PLACES,
        outputs=outputs,
        rows=outputs if is_upright else 1,
        depth=depth,
        bits=winograd_line.SCALE_BITS,
        transformed=transformed,
        tiles_of_calls=winograd_line.lines_of_calls,
        tile="const tvm_ext_dsp_line_places tiles[TVM_EXT_DSP_TILES]",
        inputs="const uint8_t *pixels",
        argument="pixels",
        members={"is_upright": True} if is_upright else {},
        transform_instructions=44,
        tile_instructions=10,
        output_instructions=40 if outputs > 2 else 30,
        border_instructions=copied * winograd_line.pixels_copied(operator, stored),
    )
    return winograd_dsp.implement(operator, stored, form)


KERNEL = Kernel(
    name="qline_dsp",
    operator=QConv2d,
    implement=implement,
    constraints=winograd_dsp.constraints(winograd_line.has_a_line_of_stride_1, winograd_line.eightfold_sums_fit),
)
