"""Sum of two tensors of floats by an accelerator, element by element, then two bounds.

float32[...], float32[...] -> float32[...], all of one shape.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise.elementwise_f32 import reference
from codegen_c.kernels.offload.driver import bound_members, bounds, entry_of, started
from codegen_c.operators.kinds import Elementwise
from codegen_c.operators.scalar import Instruction, Operand

KIND = "add"


def is_sum(operator: Elementwise, target: Target) -> bool:
    """a driver's add takes the sum of two tensors of one shape, with bounds behind it and nothing else"""
    shapes = {tensor.shape for tensor in (*operator.inputs, operator.output)}
    operands = {Operand(kind="input", index=0), Operand(kind="input", index=1)}
    match operator.finish.instructions:
        case (Instruction(function="add", operands=added), *_):
            is_added = {*added} == operands and len(operator.inputs) == 2
            return is_added and len(shapes) == 1 and bounds(operator.finish, first=1) is not None
        case _:
            return False


def is_taken(operator: Elementwise, target: Target) -> bool:
    """the accelerator's driver must take a sum of floats of its shape"""
    return entry_of(KIND, operator, target) is not None


def implement(operator: Elementwise, target: Target, stored: StoredRows) -> Implementation:
    layer = {"elements": operator.output.num_elements, **bound_members(bounds(operator.finish, first=1))}
    return started(
        KERNEL.name, operator, target, entry_of(KIND, operator, target), layer,
        reference=lambda inputs: reference(operator, inputs), taken=operator.output.num_elements,
    )  # fmt: skip


KERNEL = Kernel(
    name="offload_add_f32", operator=Elementwise, implement=implement, constraints=(is_sum, is_taken), offload=True
)
