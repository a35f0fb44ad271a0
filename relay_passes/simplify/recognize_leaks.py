"""Recognize selections by sign between a value and its multiple, which exporters write for leaky ReLU and PReLU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relax

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
    with_span,
)
from tvm_ext.core.names import unique

_BELOW = ("relax.less", "relax.less_equal")
_ABOVE = ("relax.greater", "relax.greater_equal")


@tvm.transform.module_pass(opt_level=0, name="RecognizeLeaks")
class RecognizeLeaks:
    """Write leaky ReLU and PReLU without a tensor of truth values, so that kernels fuse them as an epilogue.

    Rewrite:
        where(x < 0, x * a, x), where(x > 0, x, x * a)   ->   leakyrelu(x, a)               where a is one number
                                                         ->   max(x, 0) + min(x, 0) * a     where a differs by channel
        Both sides are equal bit for bit for every x except zero, whose sign may change.
    Leaves alone: slopes that are not constant or that broadcast x, and comparisons with anything but zero.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _recognized)


def _recognized(func: relax.Function) -> relax.Function:
    values = {binding.var: binding.value for binding in bindings(func)}
    leaks = {binding: leak for binding in bindings(func) if (leak := _leak(binding.value, values)) is not None}
    taken = {var.name for var in values} | {param.name for param in func.params}
    sequence: list[relax.VarBinding] = []
    for binding in bindings(func):
        sequence += _written(binding, *leaks[binding], taken) if binding in leaks else [binding]
    return rebuild(func, live(sequence, outputs(func))) if leaks else func


def _leak(call: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> tuple[relax.Expr, np.ndarray] | None:
    """Return the value that is kept or scaled, and its slope below zero."""
    if op_name(call) != "relax.where":
        return None
    compared = values.get(call.args[0])
    name = op_name(compared) if compared is not None else None
    if name not in (*_BELOW, *_ABOVE) or not _is_zero(compared.args[1]):
        return None
    x = compared.args[0]
    product, kept = call.args[1:] if name in _BELOW else call.args[:0:-1]
    scaled = values.get(product)
    if not kept.same_as(x) or scaled is None or op_name(scaled) != "relax.multiply":
        return None
    factors = [factor for factor in scaled.args if not factor.same_as(x)]
    slope = array_of(factors[0]) if len(factors) == 1 else None
    same = slope is not None and slope.dtype == np.float32 and static_shape(scaled) == static_shape(x)
    return (x, slope) if same else None


def _is_zero(expr: relax.Expr) -> bool:
    array = array_of(expr)
    return array is not None and array.size == 1 and float(array.reshape(-1)[0]) == 0


def _written(binding: relax.VarBinding, x: relax.Expr, slope: np.ndarray, taken: set[str]) -> list[relax.VarBinding]:
    sequence: list[relax.VarBinding] = []

    def bind(call: relax.Call, part: str = "") -> relax.Var:
        typed = with_span(infer(call), binding.value.span)
        name = unique(f"{binding.var.name}.{part}", taken)
        var = relax.DataflowVar(name, typed.ty) if part else binding.var
        sequence.append(relax.VarBinding(var, typed))
        return var

    if slope.size == 1:
        bind(relax.op.nn.leakyrelu(x, float(slope.reshape(-1)[0])))
        return sequence
    zero = constant(np.zeros((), np.float32))
    above, below = bind(relax.op.maximum(x, zero), "above"), bind(relax.op.minimum(x, zero), "below")
    bind(relax.op.add(above, bind(relax.op.multiply(below, constant(slope)), "leak")))
    return sequence
