"""add, subtract and multiply of two 16-bit QDQ tensors one of which is repeated: qbroadcast.py by its own loops.

int16 or uint16[...], int16 or uint16[...] -> int16 or uint16[...], as numpy broadcasts shapes.
"""

from __future__ import annotations

from codegen_c.kernels.elementwise import qbroadcast
from codegen_c.kernels.elementwise.qbinary import results_in_range
from codegen_c.kernels.shared.sixteen_bits import quantized_words, wide_kernel

KERNEL = wide_kernel(
    "qbroadcast_i16", qbroadcast.KERNEL, quantized_words, qbroadcast.repeats_to_output, results_in_range
)
