"""Clip real numbers before they are quantized, instead of integers to a range narrower than their type."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    infer,
    live,
    map_dataflow,
    names_in,
    op_name,
    outputs,
    rebuild,
    substitute,
    with_span,
)
from relay_passes.patterns import Dataflow, Match, any_constant, any_variable, number, op
from relay_passes.simplify.move_integers import MOVES
from tvm_ext.core.names import unique

_REAL, _ZERO_POINT = any_variable(), number()
_SCALE = any_constant(lambda scale: scale.size == 1 and scale.dtype == np.float32 and 0 < scale.reshape(()) < np.inf)
_QUANTIZE = op("relax.quantize", _REAL, _SCALE, _ZERO_POINT, read_once=True)
_CLIP = op("relax.clip", _QUANTIZE)


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
    flow, taken, rewritten = Dataflow(func), names_in(func), list[relax.VarBinding]()
    for binding in flow.sequence:
        match = flow.match(_CLIP, binding.var)
        bounds = _real_bounds(binding.value, match) if match is not None and _is_computed(match) else None
        if match is None or bounds is None:
            rewritten.append(binding)
            continue
        clipped = with_span(infer(relax.op.clip(match[_REAL], *bounds)), binding.value.span)
        real = relax.DataflowVar(unique(f"{binding.var.name}.real", taken), clipped.ty)
        rewritten.append(relax.VarBinding(real, clipped))
        rewritten.append(relax.VarBinding(binding.var, substitute(match.call(_QUANTIZE), {match[_REAL]: real})))
    return rebuild(func, live(rewritten, outputs(func)))


def _is_computed(match: Match) -> bool:
    """Return True for the quantize of a value that an operator computes and does not merely move."""
    source = op_name(match.call(_REAL))
    return source is not None and source not in MOVES | {"relax.nn.max_pool2d"}


def _real_bounds(clip: relax.Call, match: Match) -> tuple[float, float] | None:
    """Return the real numbers of a clip's two integers, or None where float32 does not represent them."""
    scale, zero_point = np.float32(match.number(_SCALE)), int(match.number(_ZERO_POINT))
    low, high = (float(np.float32(int(bound.value) - zero_point) * scale) for bound in clip.args[1:3])
    return (low, high) if np.isfinite([low, high]).all() else None
