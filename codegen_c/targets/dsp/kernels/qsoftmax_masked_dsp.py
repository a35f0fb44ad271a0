"""Softmax of a QDQ tensor that leaves elements out: the loops of qsoftmax_dsp.py on what is kept.

int8 or uint8[..., C] -> int8 or uint8[..., C], the bytes of the portable kernel.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.softmax import masked
from codegen_c.kernels.softmax.softmax_vectors import CONSTRAINTS
from codegen_c.operators.kinds import QMaskedSoftmax
from codegen_c.targets.dsp.kernels.qsoftmax_dsp import VECTORS, exponentials

LOOPS = VECTORS.masked()


def implement(operator: QMaskedSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return masked.implement(operator, LOOPS, exponentials(operator))


KERNEL = Kernel(
    name=LOOPS.kernel, operator=QMaskedSoftmax, implement=implement, constraints=(*CONSTRAINTS, masked.keeps_runs)
)
