"""Softmax over the last axis of a QDQ tensor with Helium: four exponentials at a time, gathered from their table.

int8 or uint8[..., C] -> int8 or uint8[..., C], the bytes of the portable kernel.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.softmax import qsoftmax
from codegen_c.kernels.softmax.softmax_vectors import CONSTRAINTS, SoftmaxVectors
from codegen_c.operators.kinds import QSoftmax
from codegen_c.targets.helium.kernels.helium import INCLUDES

VECTORS = SoftmaxVectors(
    kernel="qsoftmax_helium", function="tvm_ext_helium_softmax",
    includes=("tvm_ext_helium_softmax.h", "tvm_ext_layer.h", *INCLUDES), ctype="int32_t",
    element_instructions=5, vector_instructions=180,
)  # fmt: skip


def implement(operator: QSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return VECTORS.implement(operator, qsoftmax.exponentials(operator))


KERNEL = Kernel(name=VECTORS.kernel, operator=QSoftmax, implement=implement, constraints=CONSTRAINTS)
