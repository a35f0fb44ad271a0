"""Depthwise conv2d of a QDQ chain on 16-bit activations, integers only: qdepthwise.py by its own loops.

int16 or uint16[N, H, W, C], int8[C, R, S, 1] -> int16 or uint16[N, P, Q, C]; sums and rounding as in qconv2d_i16.py.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Target
from codegen_c.kernels.convolution import qdepthwise
from codegen_c.kernels.convolution.qconv2d_i16 import CONSTRAINTS
from codegen_c.kernels.shared.sixteen_bits import wide_kernel
from codegen_c.operators.kinds import QConv2d

MOST_COLUMNS = 128
"""Products of 2^16 * 2^7 that 32 bits hold: the loops carry over once for each row of the window."""


def rows_fit(operator: QConv2d, target: Target) -> bool:
    """the window must have 128 columns or fewer"""
    return operator.window.kernel[1] <= MOST_COLUMNS


KERNEL = wide_kernel("qdepthwise_i16", qdepthwise.KERNEL, qdepthwise.is_depthwise, rows_fit, *CONSTRAINTS)
