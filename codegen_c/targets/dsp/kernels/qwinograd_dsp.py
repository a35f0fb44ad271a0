"""conv2d of a QDQ chain by Winograd's F(2x2, 3x3) in integers, by the DSP extension: windows of 3 by 3, stride 1.

int8 or uint8[N, H, W, C], int8[K, 3, 3, C] -> int8 or uint8[N, P, Q, K], sums in int32. Four outputs of a channel take
16 products instead of 36, on tiles of 4 by 4 inputs: tvm_ext_dsp_winograd.h has the matrices. Weights take 32 / 9 of
their bytes.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.shared.winograd import (
    PLACES,
    SCALE_BITS,
    fourfold_sums_fit,
    is_3x3_of_stride_1,
    tiles_of_calls,
    transformed,
)
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.dsp.kernels import winograd_dsp


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    channels, _, _, depth = operator.weight.shape
    along = -(-operator.output.shape[1] // 2) + -(-operator.output.shape[2] // 2)
    form = winograd_dsp.Tiles(
        kernel=KERNEL.name,
        header="tvm_ext_dsp_winograd.h",
        prefix="tvm_ext_dsp_winograd",
        places=PLACES,
        pixels=16,
        outputs=4,
        rows=2,
        depth=depth,
        bits=SCALE_BITS,
        transformed=transformed(operator.weight).reshape(channels, PLACES, depth),
        tiles_of_calls=tiles_of_calls,
        tile="const tvm_ext_dsp_tile tiles[TVM_EXT_DSP_TILES]",
        inputs="const uint8_t *const rows[TVM_EXT_DSP_TILE_ROWS]",
        argument="rows",
        members={},
        transform_instructions=104,
        tile_instructions=90,
        output_instructions=48,
        border_instructions=2 * along * operator.output.shape[0] * (250 + 4 * depth),
    )
    return winograd_dsp.implement(operator, stored, form)


KERNEL = Kernel(
    name="qwinograd_dsp",
    operator=QConv2d,
    implement=implement,
    constraints=winograd_dsp.constraints(is_3x3_of_stride_1, fourfold_sums_fit),
)
