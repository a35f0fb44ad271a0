"""Replace a split by a slice for each part that is read: slices of contiguous elements cost nothing."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, infer, map_dataflow, op_name, rebuild, static_shape, users, with_span


@tvm.transform.module_pass(opt_level=0, name="SliceSplits")
class SliceSplits:
    """Replace the parts of a split by slices of its input.

    Rewrite:
        p = split(x, [2, 5], axis=1)        a = strided_slice(x, axes=[1], begin=[0], end=[2])
        a = p[0]                       ->   b = strided_slice(x, axes=[1], begin=[2], end=[5])
        b = p[1]
    Leaves alone: a split that is read as a whole tuple, and parts without elements.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _slice)


def _slice(func: relax.Function) -> relax.Function:
    sequence = bindings(func)
    readers = users(sequence)
    splits = {
        binding.var: binding.value
        for binding in sequence
        if op_name(binding.value) == "relax.split" and _only_parts(binding.var, readers.get(binding.var, []))
    }
    rewritten = []
    for binding in sequence:
        if binding.var in splits:
            continue
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in splits:
            split = splits[value.tuple_value]
            begin, end = _bounds(split)[value.index]
            axis = int(split.attrs.axis) % len(static_shape(split.args[0]))
            value = infer(relax.op.strided_slice(split.args[0], [axis], [begin], [end]))
            value = with_span(value, split.span)
        rewritten.append(relax.VarBinding(binding.var, value))
    return rebuild(func, rewritten)


def _only_parts(var: relax.Var, readers: list[relax.VarBinding]) -> bool:
    """Return True where a split is read only through its parts, each of which has elements."""
    if not isinstance(var.ty, tvm.ir.TupleType):
        return False  # TVM returns no tuple for a single part
    shapes = [tuple(int(dim) for dim in part.shape.values) for part in var.ty.fields]
    return bool(readers) and all(isinstance(b.value, relax.TupleGetItem) for b in readers) and 0 not in np.ravel(shapes)


def _bounds(split: relax.Call) -> list[tuple[int, int]]:
    """Return the bounds (begin, end) of each part along the axis."""
    axis = int(split.attrs.axis) % len(static_shape(split.args[0]))
    ends = np.cumsum([int(part.shape.values[axis]) for part in split.ty.fields]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))
