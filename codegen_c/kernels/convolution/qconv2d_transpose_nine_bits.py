"""Transposed convolution of a QDQ chain whose weights need 9 bits: qconv2d_transpose.py by its own loops.

int8 or uint8[N, H, W, C], weights[K, R, S, C] from -255 to 255 -> int8 or uint8[N, P, Q, K], sums in int32.
"""

from __future__ import annotations

from codegen_c.kernels.convolution import qconv2d, qconv2d_transpose
from codegen_c.kernels.shared.nine_bits import has_few_weights, nine_bit_weights
from codegen_c.kernels.shared.requantize import quantized_bytes
from codegen_c.kernels.shared.sixteen_bits import wide_kernel

KERNEL = wide_kernel(
    "qconv2d_transpose_nine_bits",
    qconv2d_transpose.KERNEL,
    quantized_bytes,
    nine_bit_weights,
    has_few_weights,
    qconv2d.sums_fit,
    qconv2d.rescaled_sums_fit,
)
