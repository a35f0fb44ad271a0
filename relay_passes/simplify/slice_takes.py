"""Replace the lookup of one index by a slice: slices of contiguous elements cost nothing, and have rules over time."""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.dataflow import (
    bindings,
    infer,
    map_dataflow,
    names_in,
    number_of,
    op_name,
    rebuild,
    static_shape,
    with_span,
)
from tvm_ext.core.names import unique


@tvm.transform.module_pass(opt_level=0, name="SliceTakes")
class SliceTakes:
    """Replace lookups of a constant index.

    Rewrite:
        take(x, -1, axis=1)  ->  reshape(strided_slice(x, axes=[1], begin=[9], end=[10]))   of 10 rows
    Leaves alone: lookups of several indices, of an index that the model computes, or without an axis.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _slice)


def _slice(func: relax.Function) -> relax.Function:
    taken, rewritten = names_in(func), list[relax.VarBinding]()
    for binding in bindings(func):
        call = binding.value
        place = _index(call)
        if place is None:
            rewritten.append(binding)
            continue
        axis, index = place
        row = with_span(infer(relax.op.strided_slice(call.args[0], [axis], [index], [index + 1])), call.span)
        var = relax.DataflowVar(unique(f"{binding.var.name}.row", taken), row.ty)
        taken.add(var.name)
        reshaped = with_span(infer(relax.op.reshape(var, static_shape(call))), call.span)
        rewritten += [relax.VarBinding(var, row), relax.VarBinding(binding.var, reshaped)]
    return rebuild(func, rewritten)


def _index(call: relax.Expr) -> tuple[int, int] | None:
    """Return the axis and the index of a lookup of one row, or None for all other expressions."""
    if op_name(call) != "relax.take" or call.attrs.axis is None:
        return None
    number, shape = number_of(call.args[1]), static_shape(call.args[0])
    axis = int(call.attrs.axis) % len(shape)
    if number is None or not -shape[axis] <= number < shape[axis]:
        return None
    return axis, int(number) % shape[axis]
