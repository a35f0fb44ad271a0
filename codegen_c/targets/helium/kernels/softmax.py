"""Kernels for quantized softmax and normalization over the last axis with Helium."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.normalization import qnormalize
from codegen_c.kernels.shared.vector_rows import in_turn
from codegen_c.kernels.softmax import qsoftmax
from codegen_c.kernels.softmax.qsoftmax import CONSTRAINTS, SoftmaxVectors
from codegen_c.operators.kinds import QMaskedSoftmax, QNormalize, QSoftmax
from codegen_c.targets.helium.kernels.product import INCLUDES

# Quantized softmax over the last axis with Helium: four exponentials at a time, gathered from their table.
#
# int8 or uint8[..., C] -> int8 or uint8[..., C], the bytes of the portable kernel.

VECTORS = SoftmaxVectors(
    kernel="qsoftmax_helium", function="tvm_ext_helium_softmax",
    includes=("tvm_ext_helium_softmax.h", "tvm_ext_layer.h", *INCLUDES), ctype="int32_t",
    element_instructions=5, vector_instructions=180,
)  # fmt: skip


def implement(operator: QSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return VECTORS.implement(operator, qsoftmax.exponentials(operator))


QSOFTMAX = Kernel(
    name=VECTORS.kernel,
    title="Quantized softmax over the last axis, four elements at a time",
    operator=QSoftmax,
    implement=implement,
    constraints=CONSTRAINTS,
)


# Quantized softmax with a mask: the loops of softmax.py on the kept elements.
#
# int8 or uint8[..., C] -> int8 or uint8[..., C], the bytes of the portable kernel.

LOOPS = VECTORS.masked()


def qsoftmax_masked_implement(operator: QMaskedSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return qsoftmax.masked_implement(operator, LOOPS, qsoftmax.exponentials(operator))


QSOFTMAX_MASKED = Kernel(
    name=LOOPS.kernel,
    title="Quantized softmax over the last axis with a mask",
    operator=QMaskedSoftmax,
    implement=qsoftmax_masked_implement,
    constraints=(*CONSTRAINTS, qsoftmax.keeps_runs),
)


# Quantized LayerNorm and RMSNorm with Helium: four elements at a time, the bytes of the portable kernel.

ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 4, 130


def qnormalize_implement(operator: QNormalize, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        made, length = qnormalize.of_vectors(operator, count), operator.output.shape[-1]
        function = replace(
            made.function,
            body=made.function.body.replace("tvm_ext_normalize(", "tvm_ext_helium_normalize("),
            includes=("tvm_ext_helium_normalize.h", "tvm_ext_helium.h", "tvm_ext_helium_plain.h", *qnormalize.INCLUDES),
        )
        instructions = count * (length * ELEMENT_INSTRUCTIONS + VECTOR_INSTRUCTIONS)
        return replace(made, kernel=QNORMALIZE.name, function=function, instructions=instructions)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


QNORMALIZE = Kernel(
    name="qnormalize_helium",
    title="LayerNorm and RMSNorm of a quantized tensor over the last axis",
    operator=QNormalize,
    implement=qnormalize_implement,
    constraints=qnormalize.KERNEL.constraints,
)


KERNELS = (QSOFTMAX, QSOFTMAX_MASKED, QNORMALIZE)
