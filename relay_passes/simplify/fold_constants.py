"""Fold calls of constants with numpy; keep each quantized weight as `dequantize(integers, scale, zero point)`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relax

from relay_passes.analysis.constant_value import evaluate, evaluate_by_tvm
from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    live,
    map_dataflow,
    op_name,
    outputs,
    rebuild,
    static_shape,
    substitute,
)

_DEQUANTIZE = "relax.dequantize"
_SHAPE_MOVES = ("relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze")


@tvm.transform.module_pass(opt_level=0, name="FoldConstants")
class FoldConstants:
    """Replace calls that can be computed at compile time by their values, and remove bindings that have no reader.

    Rewrite:
        add(const, const)                            -> const
        reshape(dequantize(const, s, z, axis=0))     -> dequantize(reshape'd const, s, z, axis=0')
        (likewise permute_dims, expand_dims, squeeze; per channel where the channels stay one whole axis)
    Leaves alone: every dequantize, because it marks the weight as quantized.

    The values equal TVM's bit for bit: TVM computes the operators that numpy would round differently (exp, ...).
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _fold)


def _fold(func: relax.Function) -> relax.Function:
    known: dict[relax.Var, relax.Expr] = {}
    dequantized: dict[relax.Var, relax.Call] = {}
    kept = []
    for binding in bindings(func):
        value = substitute(binding.value, known)
        folded = _value(value)
        if folded is not None:
            known[binding.var] = folded
            continue
        moved = _moved_onto_constant(value, dequantized)
        value = value if moved is None else moved
        if op_name(value) == _DEQUANTIZE and array_of(value.args[0]) is not None:
            dequantized[binding.var] = value
        kept.append(relax.VarBinding(binding.var, value))
    results = [substitute(result, known) for result in outputs(func)]
    return rebuild(func, live(kept, results), results)


def _value(value: relax.Expr) -> relax.Expr | None:
    if isinstance(value, tvm.ir.GenericConst | relax.ShapeExpr):
        return value
    if not isinstance(value, relax.Call) or op_name(value) == _DEQUANTIZE:
        return None
    found = evaluate(value)
    return evaluate_by_tvm(value) if found is None else found


def _moved_onto_constant(value: relax.Expr, dequantized: Mapping[relax.Var, relax.Call]) -> relax.Call | None:
    """Return `dequantize(moved constant, scale, zero point)` for a shape operator on a dequantized constant."""
    if op_name(value) not in _SHAPE_MOVES or value.args[0] not in dequantized:
        return None
    inner = dequantized[value.args[0]]
    shape, moved = static_shape(inner), static_shape(value)
    axis = int(inner.attrs.axis) % max(len(shape), 1)
    per_tensor = all(array_of(param) is not None and array_of(param).ndim == 0 for param in inner.args[1:3])
    if op_name(value) == "relax.permute_dims":
        axes = value.attrs.axes or range(len(shape))[::-1]
        order = [int(index) % len(shape) for index in axes]
        data, new_axis = array_of(inner.args[0]).transpose(order), order.index(axis) if shape else 0
    else:
        data, new_axis = array_of(inner.args[0]).reshape(moved), _axis_after_reshape(shape, axis, moved)
    if new_axis is None and not per_tensor:
        return None
    call = relax.op.dequantize(
        constant(data), inner.args[1], inner.args[2], 0 if new_axis is None else new_axis, str(inner.attrs.out_dtype)
    )
    return infer(relax.Call(call.op, call.args, call.attrs, call.ty_args, value.span))


def _axis_after_reshape(shape: tuple[int, ...], axis: int, moved: tuple[int, ...]) -> int | None:
    """Return the index of `axis` in the new shape, or None where the reshape splits or merges the axis."""
    if not shape or 0 in shape:
        return None
    before = int(np.prod(shape[:axis], dtype=np.int64))
    for index, extent in enumerate(moved):
        if extent == shape[axis] and int(np.prod(moved[:index], dtype=np.int64)) == before:
            return index
    return None
