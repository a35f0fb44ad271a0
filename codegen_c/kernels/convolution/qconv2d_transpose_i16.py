"""Transposed convolution of a QDQ chain on 16-bit activations, integers only: qconv2d_transpose.py by its own loops.

int16 or uint16[N, H, W, C], int8[K, R, S, C] -> int16 or uint16[N, P, Q, K]; sums and rounding as in qconv2d_i16.py.
"""

from __future__ import annotations

from codegen_c.kernels.convolution import qconv2d_transpose
from codegen_c.kernels.convolution.qconv2d_i16 import CONSTRAINTS
from codegen_c.kernels.shared.sixteen_bits import wide_kernel

KERNEL = wide_kernel("qconv2d_transpose_i16", qconv2d_transpose.KERNEL, *CONSTRAINTS)
