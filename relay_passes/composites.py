"""Composites, which are private functions with one fused operator each, and calls of operators that users bring."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax.expr import _update_type

from relay_passes.dataflow import bindings, dict_attrs, op_name
from tvm_ext.core.decisions.composites import CompositeKind, CustomUse, SourceNodes
from tvm_ext.core.decisions.decision import Decision


def is_composite(func: object) -> bool:
    """Return True for a function of a module that is a composite."""
    return isinstance(func, relax.Function) and CompositeKind.read(func).kind != ""


def composite_of(mod: tvm.IRModule, expr: relax.Expr) -> relax.Function | None:
    """Return the composite that an expression calls, or None for everything else."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.GlobalVar):
        return None
    return mod[expr.op] if is_composite(mod[expr.op]) else None


def has_composites_only(mod: tvm.IRModule) -> bool:
    """Return True where `main` calls nothing but composites."""
    values = (binding.value for binding in bindings(mod["main"]))
    return all(composite_of(mod, v) is not None or isinstance(v, relax.Var | relax.TupleGetItem) for v in values)


def attributes(kind: str, source_nodes: Sequence[str], *decisions: Decision) -> tvm.ir.DictAttrs:
    """Return the attributes of a composite.

    source_nodes: the model's own names of its operators.
    decisions: further decisions that the composite carries.
    """
    named = (CompositeKind(kind=kind, is_primitive=True), SourceNodes(nodes=tuple(source_nodes)))
    return dict_attrs(*named, *decisions)


def call_new(
    mod: tvm.IRModule, name: str, func: relax.Function, arguments: Sequence[relax.Expr], span: tvm.ir.Span | None = None
) -> relax.Call:
    """Add a function to the module under an unused name, and return a call of it."""
    return relax.BlockBuilder().normalize(relax.Call(added(mod, name, func), arguments, span=span))


def added(mod: tvm.IRModule, name: str, func: relax.Function) -> tvm.ir.GlobalVar:
    """Add a function to the module under an unused name, and return its variable."""
    mod[name] = func
    var = mod.get_global_var(name)
    _update_type(var, func.ty)
    return var


def kind_of(operator: relax.Call) -> str:
    """Return the kind of a composite by its operator: `nn_conv2d` for a call of relax.nn.conv2d."""
    return (op_name(operator) or "call").removeprefix("relax.").replace(".", "_")


def custom_use(value: relax.Expr) -> CustomUse | None:
    """Return the custom operator that an expression calls, or None for everything else."""
    if not isinstance(value, relax.Call) or not isinstance(value.attrs, tvm.ir.DictAttrs):
        return None
    use = CustomUse.read(value)
    return use if use.operator else None
