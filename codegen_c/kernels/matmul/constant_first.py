"""Products of a constant matrix with an activation on its right: the kernels of products of two activations.

float32[M, C] or int8[M, C] times [C, N] -> [M, N], as DFTs and filter banks are exported. The kernel of two activations
reads the constant in place of its first tensor, so that nothing is transposed.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.constant_input import stored_with_constant, with_constant_input
from codegen_c.operators.kinds import ConstantMatmul


def product_has_a_kernel(operator: ConstantMatmul, target: Target) -> bool:
    """a kernel for products of two activations must take it"""
    return isinstance(select(operator.product, target), Implementation)


def implement(operator: ConstantMatmul, target: Target, stored: StoredRows) -> Implementation:
    made = select(operator.product, target, stored_with_constant(stored, 0))
    assert isinstance(made, Implementation), "constraints have selected one"
    return with_constant_input(made, 0, operator.first)


KERNEL = Kernel(
    name="matmul_constant_first",
    title="Product of a constant matrix with an activation on its right",
    operator=ConstantMatmul,
    implement=implement,
    constraints=(product_has_a_kernel,),
)
