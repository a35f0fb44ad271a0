"""Depthwise conv2d of a QDQ chain whose weights have 4 bits each, by the DSP extension: two columns at a time.

int8 or uint8[N, H, W, C], 4 bits[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32: qdepthwise_dsp.py, where a
channel's weights are taken apart once for each strip of rows, 16 times what they are.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qdepthwise
from codegen_c.kernels.convolution.qconv2d_packed import CONSTRAINTS
from codegen_c.operators.kinds import PackedQConv2d
from codegen_c.targets.dsp.kernels import qdepthwise_dsp
from codegen_c.targets.dsp.kernels.planes_dsp import strip_blocks
from codegen_c.targets.dsp.kernels.qconv2d_packed_dsp import sixteenfold_sums_fit


def implement(operator: PackedQConv2d, target: Target, stored: StoredRows) -> Implementation:
    return replace(qdepthwise_dsp.implement(operator, target, stored), kernel=KERNEL.name)


KERNEL = Kernel(
    name="qdepthwise_packed_dsp",
    operator=PackedQConv2d,
    implement=implement,
    constraints=(
        qdepthwise.is_depthwise,
        qdepthwise_dsp.is_dense_in_columns,
        qdepthwise_dsp.has_four_channels,
        *CONSTRAINTS,
        sixteenfold_sums_fit,
    ),
    blocks=strip_blocks,
)
