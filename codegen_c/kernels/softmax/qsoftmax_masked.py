"""Softmax of a QDQ tensor over its last axis that leaves elements out, integers only: qsoftmax.py on what is kept.

int8 or uint8[..., C] -> int8 or uint8[..., C]. Elements that are left out get the output's zero point.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.softmax import masked, qsoftmax
from codegen_c.operators.kinds import QMaskedSoftmax

LOOPS = masked.SoftmaxLoops(
    kernel="qsoftmax_masked_i8", function="tvm_ext_qsoftmax", includes=qsoftmax.INCLUDES, ctype="int32_t",
    layer="tvm_ext_qsoftmax_layer", length="input.channels", lines=lambda operator: qsoftmax.layer_of(operator, 1),
    element_instructions=qsoftmax.ELEMENT_INSTRUCTIONS, vector_instructions=qsoftmax.VECTOR_INSTRUCTIONS,
)  # fmt: skip


def implement(operator: QMaskedSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return masked.implement(operator, LOOPS, qsoftmax.exponentials(operator))


KERNEL = Kernel(
    name=LOOPS.kernel, operator=QMaskedSoftmax, implement=implement,
    constraints=(*qsoftmax.KERNEL.constraints, masked.keeps_runs),
)  # fmt: skip
