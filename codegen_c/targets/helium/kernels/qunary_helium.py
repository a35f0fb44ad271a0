"""Any function of one QDQ tensor with Helium: 16 results at a time from the portable kernel's table."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qunary
from codegen_c.kernels.shared.layer import one_image
from codegen_c.operators.kinds import QUnary


def implement(operator: QUnary, target: Target, stored: StoredRows) -> Implementation:
    made = qunary.KERNEL.implement(operator, target, stored)
    function = replace(
        made.function,
        body=made.function.body.replace("tvm_ext_qunary(", "tvm_ext_helium_qunary("),
        includes=(
            "tvm_ext_helium_qunary.h", "tvm_ext_helium.h", "tvm_ext_helium_plain.h", "tvm_ext_requantize.h",
            *made.function.includes,
        ),
    )  # fmt: skip
    return replace(made, kernel=KERNEL.name, function=function, instructions=_instructions(operator))


def _instructions(operator: QUnary) -> int:
    """Modelled: a load, a gather, a store and the loop for 16 elements; each row of an image begins anew."""
    kind = one_image(operator.output)
    rows, length = kind.shape[1], kind.num_elements // kind.shape[1]
    return rows * (-(-length // 16) * 4 + 6)


KERNEL = Kernel(name="qunary_helium", operator=QUnary, implement=implement, constraints=qunary.KERNEL.constraints)
