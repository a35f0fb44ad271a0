"""Clip real numbers before they are quantized, instead of integers to a range narrower than their type."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    infer,
    live,
    map_dataflow,
    op_name,
    operands,
    outputs,
    rebuild,
    substitute,
    users,
    with_span,
)
from relay_passes.simplify.move_integers import MOVES
from tvm_ext.core.names import unique


@tvm.transform.module_pass(opt_level=0, name="NarrowQuantize")
class NarrowQuantize:
    """Move a clip of freshly quantized integers ahead of their quantize, where a layer can fuse it as its clamp.

    Rewrite:
        q = quantize(x, s, z)        r = clip(x, (0 - z) * s, (15 - z) * s)
        c = clip(q, 0, 15)       ->  c = quantize(r, s, z)
        The rewrite is exact: a bound is within half an ulp of a whole number of scales, and quantize is monotonic.
    Leaves alone: scales per channel, quantized inputs of the model, elements that are only moved before, and a quantize
    with another reader.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _narrow)


def _narrow(func: relax.Function) -> relax.Function:
    sequence = bindings(func)
    readers = users(sequence)
    values = {binding.var: binding.value for binding in sequence}
    taken = {binding.var.name for binding in sequence} | {param.name for param in func.params}
    returned = {leaf for result in outputs(func) for leaf in operands(result)}
    rewritten = []
    for binding in sequence:
        source = binding.value.args[0] if op_name(binding.value) == "relax.clip" else None
        quantize = values.get(source)
        bounds = _real_bounds(binding.value, quantize) if _is_computed(quantize, values) else None
        if bounds is None or len(readers[source]) > 1 or source in returned:
            rewritten.append(binding)
            continue
        clipped = with_span(infer(relax.op.clip(quantize.args[0], *bounds)), binding.value.span)
        real = relax.DataflowVar(unique(f"{binding.var.name}.real", taken), clipped.ty)
        rewritten.append(relax.VarBinding(real, clipped))
        rewritten.append(relax.VarBinding(binding.var, substitute(quantize, {quantize.args[0]: real})))
    return rebuild(func, live(rewritten, outputs(func)))


def _is_computed(quantize: relax.Expr | None, values: Mapping[relax.Var, relax.Expr]) -> bool:
    """Return True for the quantize of a value that an operator computes and does not merely move."""
    if op_name(quantize) != "relax.quantize" or not isinstance(quantize.args[0], relax.Var):
        return False
    source = op_name(values.get(quantize.args[0]))
    return source is not None and source not in MOVES | {"relax.nn.max_pool2d"}


def _real_bounds(clip: relax.Call, quantize: relax.Call) -> tuple[float, float] | None:
    """Return the real numbers of a clip's two integers, or None unless the whole tensor has one float32 scale."""
    scale, zero_point = array_of(quantize.args[1]), array_of(quantize.args[2])
    known = scale is not None and zero_point is not None and scale.size == zero_point.size == 1
    if not known or scale.dtype != np.float32 or not 0 < scale.reshape(()) < np.inf:
        return None
    steps = [np.float32(int(bound.value) - int(zero_point.reshape(()))) for bound in clip.args[1:3]]
    low, high = (float(step * np.float32(scale.reshape(()))) for step in steps)
    return (low, high) if np.isfinite([low, high]).all() else None
