"""conv2d of a QDQ chain on 16-bit activations, integers only: qconv2d.py by its own loops.

int16 or uint16[N, H, W, C], int8[K, R, S, C / groups] -> int16 or uint16[N, P, Q, K]. Sums have 32 bits where these
hold them whatever the input, else 64. Rounding "tflite" is TensorFlow Lite's: of a layer whose bias has 64 bits once,
halves up, by a factor of 15 bits.
"""

from __future__ import annotations

from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.requantize import channel_factors
from codegen_c.kernels.shared.sixteen_bits import weighted, wide_kernel

CONSTRAINTS = weighted(qconv2d.products, channel_factors)
KERNEL = wide_kernel("qconv2d_i16", qconv2d.KERNEL, *CONSTRAINTS)
