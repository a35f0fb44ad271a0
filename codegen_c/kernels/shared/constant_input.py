"""Let a kernel of two tensors read a constant in place of one of them."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Parameter, StoredRows
from codegen_c.operators.kinds import Array


def stored_with_constant(stored: StoredRows, index: int) -> StoredRows:
    """Return the stored rows for the kernel of two tensors; all rows of its constant input `index` are stored."""
    others = [stored.input(position) for position in range(len(stored.inputs))]
    return replace(stored, inputs=(*others[:index], None, *others[index:]))


def with_constant_input(made: Implementation, index: int, constant: Array) -> Implementation:
    """Return an implementation whose input `index` is a constant parameter; its other inputs move up."""
    operand = [parameter for parameter in made.function.parameters if parameter.role == "input"][index]
    others = [parameter for parameter in made.function.parameters if parameter is not operand]
    spatial = made.spatial

    def reference(inputs: list[Array]) -> list[Array]:
        return made.reference([*inputs[:index], constant, *inputs[index:]])

    return replace(
        made,
        function=replace(made.function, parameters=_constant_first(replace(operand, role="constant"), others)),
        reference=reference,
        constants=((operand.name, constant), *made.constants),
        spatial=replace(spatial, inputs=(*spatial.inputs[:index], *spatial.inputs[index + 1 :])) if spatial else None,
        in_place=tuple(place - (place > index) for place in made.in_place if place != index),
        alternatives=(),
        keeping=None,
        in_rows=None,
        accumulating=None,
    )


def _constant_first(constant: Parameter, others: list[Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters with a constant before all other constants."""
    ports = [parameter for parameter in others if parameter.role in ("input", "output")]
    rest = [parameter for parameter in others if parameter.role not in ("input", "output")]
    return (*ports, constant, *rest)
