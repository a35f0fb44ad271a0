"""Composites: private functions of one operator each, as the passes here form and move them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax
from tvm.relax.expr import _update_type

from relay_passes.dataflow import op_name

STREAM = "stream"
"""Attribute of composites through which an input comes in ("read") or an output goes out ("write")."""


def is_composite(func: object) -> bool:
    """Whether a function of a module is a composite."""
    return isinstance(func, relax.Function) and func.attrs is not None and "Composite" in func.attrs


def composite_of(mod: tvm.IRModule, expr: relax.Expr) -> relax.Function | None:
    """The composite that an expression calls, None for everything else."""
    if not isinstance(expr, relax.Call) or not isinstance(expr.op, tvm.ir.GlobalVar):
        return None
    return mod[expr.op] if is_composite(mod[expr.op]) else None


def stream_of(composite: relax.Function | None) -> str | None:
    """`read` or `write` for a composite through which an input comes in or an output goes out, None for others."""
    return str(composite.attrs[STREAM]) if composite is not None and STREAM in composite.attrs else None


def attributes(
    kind: str,
    source_nodes: Sequence[str],
    *,
    layout: Sequence[int] = (),
    prim_funcs: Mapping[tvm.ir.GlobalVar, tvm.tirx.PrimFunc] | None = None,
    rounding: str = "onnx",
) -> tvm.ir.DictAttrs:
    """Attributes of a composite.

    source_nodes: the model's own names of its operators. layout: the model's axes in the order its result is
    stored in, where that is another than the model's. prim_funcs: functions its `call_tir` name, so that it is
    whole without its module. rounding: what quantized arithmetic means, where that is not `onnx`'s one rounding.
    """
    entries = {"Composite": f"tvm_ext.{kind}", "Primitive": True, "source_nodes": list(source_nodes)}
    entries |= {"layout": list(layout)} if layout else {}
    entries |= {"prim_funcs": dict(prim_funcs)} if prim_funcs else {}
    entries |= {"rounding": rounding} if rounding != "onnx" else {}
    return tvm.ir.make_node("ir.DictAttrs", **entries)


def call_new(
    mod: tvm.IRModule, name: str, func: relax.Function, arguments: Sequence[relax.Expr], span: tvm.ir.Span | None = None
) -> relax.Call:
    """Adds a function to the module under a name that is free, and calls it."""
    mod[name] = func
    var = mod.get_global_var(name)
    _update_type(var, func.ty)
    return relax.BlockBuilder().normalize(relax.Call(var, arguments, span=span))


def kind_of(operator: relax.Call) -> str:
    """`nn_conv2d` for a call of relax.nn.conv2d."""
    return (op_name(operator) or "call").removeprefix("relax.").replace(".", "_")
