"""Kernel for quantized add and subtract of one shape with RISC-V's vectors: a group of registers at a time.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...], by factors of 32 bits that give every pair of elements its
result (narrow_sums.py). Either rounding.
"""

from __future__ import annotations

from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.layer import image, one_image, shapes, with_rings
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QBinary
from codegen_c.targets.riscv_vector.kernels.products import num_groups

LAYER = "tvm_ext_rvv_qbinary_layer"
GROUP, CALL_INSTRUCTIONS, GROUP_INSTRUCTIONS = 8, 40, 20
"""Registers of sums, modelled instructions of a run of elements, and of a group of registers."""


def has_narrow_sums(operator: QBinary, target: Target) -> bool:
    """the operator must be a sum or difference for which factors of 32 bits give each pair of elements its result"""
    return narrow_sums(operator) is not None


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    output = operator.output
    rows, narrow = qbinary.rows_of(output, num_inputs=2), narrow_sums(operator)
    assert narrow is not None, "a constraint has looked"
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    rings, layer = with_rings(LAYER, stored, ("first", "second"))
    call = f"tvm_ext_rvv_qbinary_rows({layer}, input0, input1, output, {'row_begin, row_end' if rows else '0, 1'});"
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *(Parameter(name=f"input{i}", ctype=C_TYPES[t.dtype], role="input")
                  for i, t in enumerate(operator.inputs)),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body="\n".join([*rings, call]),
            helpers=shapes(LAYER, {
                "first": first, "second": second, "output": image(one_image(output), stored=stored),
                "sum": {
                    "start": narrow.start, "first": narrow.first, "second": narrow.second, "shift": narrow.shift,
                    "low": operator.low, "high": operator.high,
                },
            }),
            includes=("tvm_ext_rvv_qbinary.h", "tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_rvv.h"),
        ),
        reference=lambda inputs: qbinary.reference(operator, inputs),
        instructions=_instructions(operator),
        spatial=rows,
        in_place=(0, 1),
        exact=True,
        pitched=True,
        row_pitched=rows is not None,
    )  # fmt: skip


def _instructions(operator: QBinary) -> int:
    """Return the modelled instructions: each row of an image is a run."""
    _, rows, columns, channels = one_image(operator.output).shape
    return rows * (CALL_INSTRUCTIONS + GROUP_INSTRUCTIONS * num_groups(columns * channels, GROUP))


KERNEL = Kernel(
    name="qbinary_rvv",
    title="Quantized add and subtract of tensors of one shape, a group of registers at a time",
    operator=QBinary,
    implement=implement,
    constraints=(*qbinary.QBINARY.constraints, has_narrow_sums),
)
