"""LayerNorm and RMSNorm of a QDQ tensor with Helium: four elements at a time, the bytes of the portable kernel."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.normalization import qnormalize
from codegen_c.kernels.shared.vectors_in_turn import in_turn
from codegen_c.operators.kinds import QNormalize

ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 4, 130


def implement(operator: QNormalize, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        made, length = qnormalize.of_vectors(operator, count), operator.output.shape[-1]
        function = replace(
            made.function,
            body=made.function.body.replace("tvm_ext_normalize(", "tvm_ext_helium_normalize("),
            includes=("tvm_ext_helium_normalize.h", "tvm_ext_helium.h", "tvm_ext_helium_plain.h", *qnormalize.INCLUDES),
        )
        instructions = count * (length * ELEMENT_INSTRUCTIONS + VECTOR_INSTRUCTIONS)
        return replace(made, kernel=KERNEL.name, function=function, instructions=instructions)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


KERNEL = Kernel(
    name="qnormalize_helium",
    operator=QNormalize,
    implement=implement,
    constraints=qnormalize.KERNEL.constraints,
)
