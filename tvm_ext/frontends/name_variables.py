"""Names for the variables of an imported graph: the model's own tensor names, exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tvm import relax

from relay_passes.dataflow import substitute
from tvm_ext.frontends.statements import Statement


def name_variables(
    statements: Sequence[Statement], tensors: Mapping[str, object], outputs: Sequence[str]
) -> tuple[list[relax.VarBinding], dict[relax.Var, relax.Var]]:
    """Bindings with names, and the named variable for each unnamed one.

    A variable that holds a tensor of the model has its name, that of an output first where it has several
    (Identity). The others, inside what one node became, are called after the node's first output: `y.1`, `y.2`.
    """
    own: dict[object, str] = {}
    for name in [*outputs, *tensors]:
        if isinstance(tensors[name], relax.Var):
            own.setdefault(tensors[name], name)
    taken = set(tensors)
    renamed: dict[relax.Var, relax.Var] = {}
    bindings = []
    for statement in statements:
        name = own.get(statement.var) or _inner_name(statement.tensor, taken)
        taken.add(name)
        value = substitute(statement.value, renamed)
        renamed[statement.var] = relax.DataflowVar(name, statement.var.ty)
        bindings.append(relax.VarBinding(renamed[statement.var], value))
    return bindings, renamed


def _inner_name(tensor: str, taken: set[str]) -> str:
    index = 1
    while f"{tensor}.{index}" in taken:
        index += 1
    return f"{tensor}.{index}"
