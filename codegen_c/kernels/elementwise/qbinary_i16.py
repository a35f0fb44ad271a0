"""add, subtract and multiply of two 16-bit QDQ tensors of one shape, integers only: qbinary.py by its own loops.

int16 or uint16[...], int16 or uint16[...] -> int16 or uint16[...].
"""

from __future__ import annotations

from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.sixteen_bits import quantized_words, wide_kernel

KERNEL = wide_kernel("qbinary_i16", qbinary.KERNEL, quantized_words, qbinary.same_shape, qbinary.results_in_range)
