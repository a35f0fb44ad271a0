"""Mean or sum of a 16-bit QDQ tensor over any axes, integers only: qmean.py by its own loops.

int16 or uint16[...] -> int16 or uint16[...], reduced axes with an extent of 1; sums in int32.
"""

from __future__ import annotations

from codegen_c.kernels.pooling import qmean
from codegen_c.kernels.shared.sixteen_bits import quantized_words, wide_kernel

KERNEL = wide_kernel("qmean_i16", qmean.KERNEL, quantized_words, qmean.sums_fit)
