"""Recognize selections by sign between a value and its multiple, which exporters write for leaky ReLU and PReLU."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    constant,
    infer,
    live,
    map_dataflow,
    names_in,
    outputs,
    rebuild,
    static_shape,
    with_span,
)
from relay_passes.patterns import Dataflow, Match, Pattern, any_constant, any_value, either, number, op
from tvm_ext.core.names import unique

_X, _SLOPE = any_value(), any_constant(lambda slope: slope.dtype == np.float32)
_SCALED = op("relax.multiply", _X, _SLOPE, any_order=True)


def _leak(comparison: str, *chosen: Pattern) -> Pattern:
    compared = op((f"relax.{comparison}", f"relax.{comparison}_equal"), _X, number(0))
    return op("relax.where", compared, *chosen)


_LEAK = either(_leak("less", _SCALED, _X), _leak("greater", _X, _SCALED))


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
    flow, taken = Dataflow(func), names_in(func)
    matches = {b.var: match for b in flow.sequence if (match := flow.match(_LEAK, b.var)) is not None}
    leaks = {var: leak for var, leak in matches.items() if static_shape(leak[_SCALED]) == static_shape(leak[_X])}
    sequence: list[relax.VarBinding] = []
    for binding in flow.sequence:
        sequence += _written(binding, leaks[binding.var], taken) if binding.var in leaks else [binding]
    return rebuild(func, live(sequence, outputs(func))) if leaks else func


def _written(binding: relax.VarBinding, leak: Match, taken: set[str]) -> list[relax.VarBinding]:
    x, slope, sequence = leak[_X], leak.array(_SLOPE), list[relax.VarBinding]()

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
