"""Dense layer of a QDQ chain on 16-bit activations, integers only: qdense.py by its own loops.

int16 or uint16[..., C], int8[K, C] -> int16 or uint16[..., K]; sums and rounding as in qconv2d_i16.py.
"""

from __future__ import annotations

from codegen_c.kernels.dense import qdense
from codegen_c.kernels.shared.sixteen_bits import weighted, wide_kernel

KERNEL = wide_kernel("qdense_i16", qdense.KERNEL, *weighted(qdense.products, qdense.layer_factors))
