"""Max and average pooling of a QDQ chain on 16-bit activations, integers only: qpool2d.py by its own loops.

int16 or uint16[N, H, W, C] -> int16 or uint16[N, P, Q, C].
"""

from __future__ import annotations

from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.shared.sixteen_bits import quantized_words, wide_kernel

KERNEL = wide_kernel("qpool2d_i16", qpool2d.KERNEL, quantized_words, *qpool2d.WINDOWS)
