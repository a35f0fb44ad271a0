"""Kernels for quantized softmax over the last axis by the DSP extension, also with a mask."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.softmax import qsoftmax
from codegen_c.kernels.softmax.qsoftmax import CONSTRAINTS, SoftmaxVectors
from codegen_c.operators.kinds import QMaskedSoftmax, QSoftmax

# Quantized softmax over the last axis by the DSP extension: maxima four at a time, one high product.
#
# int8 or uint8[..., C] -> int8 or uint8[..., C], the bytes of the portable kernel. Exponentials are stored in the order
# of the elements, so that a vector's maximum only moves the address from which they are read.

VECTORS = SoftmaxVectors(
    kernel="qsoftmax_dsp", function="tvm_ext_dsp_softmax",
    includes=("tvm_ext_dsp_softmax.h", "tvm_ext_dsp.h", "tvm_ext_layer.h", "tvm_ext_requantize.h"), ctype="uint32_t",
    element_instructions=12, vector_instructions=200,
)  # fmt: skip


def exponentials(operator: QSoftmax) -> np.ndarray:
    """Return the exponentials of -255 to 0 steps, uint32[256]."""
    return qsoftmax.exponentials(operator)[::-1].astype(np.uint32)


def implement(operator: QSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return VECTORS.implement(operator, exponentials(operator))


QSOFTMAX = Kernel(
    name=VECTORS.kernel,
    title="Quantized softmax over the last axis",
    operator=QSoftmax,
    implement=implement,
    constraints=CONSTRAINTS,
)


# Quantized softmax with a mask: the loops of softmax.py on the kept elements.
#
# int8 or uint8[..., C] -> int8 or uint8[..., C], the bytes of the portable kernel.

LOOPS = VECTORS.masked()


def qsoftmax_masked_implement(operator: QMaskedSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return qsoftmax.masked_implement(operator, LOOPS, exponentials(operator))


QSOFTMAX_MASKED = Kernel(
    name=LOOPS.kernel,
    title="Quantized softmax over the last axis with a mask",
    operator=QMaskedSoftmax,
    implement=qsoftmax_masked_implement,
    constraints=(*CONSTRAINTS, qsoftmax.keeps_runs),
)


KERNELS = (QSOFTMAX, QSOFTMAX_MASKED)
