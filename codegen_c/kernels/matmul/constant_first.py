"""Products of a constant matrix with an activation on its right: the kernels of products of two activations.

float32[M, C] or int8[M, C] times [C, N] -> [M, N], as DFTs and filter banks are exported. The kernel of two activations
reads the constant in place of its first tensor, so that nothing is transposed.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Array, ConstantMatmul


def product_has_a_kernel(operator: ConstantMatmul, target: Target) -> bool:
    """a kernel for products of two activations must take it"""
    return isinstance(select(operator.product, target), Implementation)


def implement(operator: ConstantMatmul, target: Target, stored: StoredRows) -> Implementation:
    made = select(operator.product, target, replace(stored, inputs=(None, *stored.inputs)))
    assert isinstance(made, Implementation), "constraints have selected one"
    first, *others = made.function.parameters
    constant = replace(first, role="constant")
    spatial = made.spatial

    def reference(inputs: list[Array]) -> list[Array]:
        return made.reference([operator.first, *inputs])

    return replace(
        made,
        function=replace(made.function, parameters=_constants_first(constant, others)),
        reference=reference,
        constants=((first.name, operator.first), *made.constants),
        spatial=replace(spatial, inputs=spatial.inputs[1:]) if spatial else None,
        in_place=tuple(index - 1 for index in made.in_place if index),
        alternatives=(),
        keeping=None,
        in_rows=None,
        accumulating=None,
    )


def _constants_first(constant: Parameter, others: list[Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters with a constant before all other constants."""
    ports = [parameter for parameter in others if parameter.role in ("input", "output")]
    rest = [parameter for parameter in others if parameter.role not in ("input", "output")]
    return (*ports, constant, *rest)


KERNEL = Kernel(
    name="matmul_constant_first",
    title="Product of a constant matrix with an activation on its right",
    operator=ConstantMatmul,
    implement=implement,
    constraints=(product_has_a_kernel,),
)
