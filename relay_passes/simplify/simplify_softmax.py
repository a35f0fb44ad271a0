"""Bring softmax to one form: over the last axis, without the guards and split scales that frameworks write."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    infer,
    live,
    map_dataflow,
    names_in,
    op_name,
    operands,
    outputs,
    rebuild,
    static_shape,
    substitute,
    with_span,
)
from relay_passes.patterns import Dataflow, any_constant, any_value, either, op
from tvm_ext.core.names import unique

_SCORES, _CONDITION, _ZEROS = any_value(), any_value(), any_constant(lambda zeros: not zeros.any())
_SHARES = op("relax.nn.softmax", _SCORES)
_GUARDED = op("relax.where", _CONDITION, either(_ZEROS, op("relax.full_like", any_value(), _ZEROS)), _SHARES)
_BETWEEN = ("relax.logical_not", "relax.astype", "relax.max")
_IS_MASKED = op("relax.equal", _SCORES, any_constant(lambda bound: np.array_equal(bound, np.float32(-np.inf))))
_ACTIVATION, _FACTOR = any_value(), any_constant(lambda factor: factor.size == 1 and factor.reshape(-1)[0] > 0)
_SCALED = op("relax.multiply", _ACTIVATION, _FACTOR)
_SOFTMAXES = {"relax.nn.softmax": relax.op.nn.softmax, "relax.nn.log_softmax": relax.op.nn.log_softmax}


@tvm.transform.module_pass(opt_level=0, name="SimplifySoftmax")
class SimplifySoftmax:
    """Reduce attention, as PyTorch decomposes it, to a product, one factor and a softmax over the last axis.

    Rewrite:
        softmax(x, axis=1)                               ->   permute_dims(softmax(permute_dims(x)))
        Kernels compute vectors of adjacent elements. The permutations often cancel with others, such as those of
        channels. Axes after the softmax's own that have one element each are only reshaped; log_softmax alike.
        where(not any(not (s == -inf)), 0, softmax(s))   ->   softmax(s)             if no vector of s is all -inf
        matmul(q * 0.5, k * 0.5)                         ->   matmul(q, k) * 0.25
        A product of two activations is -inf only on overflow. The same holds for its sum with a constant mask that
        keeps at least one element of every vector.
    Leaves alone: guards of other scores, masks that are activations, factors that are not single positive numbers.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, lambda func: _last(_scaled_behind(_unguarded(func))))


def _unguarded(func: relax.Function) -> relax.Function:
    flow = Dataflow(func)
    same = {b.var: found for b in flow.sequence if (found := _guarded(b.var, flow)) is not None}
    if not same:
        return func
    results = [substitute(result, same) for result in outputs(func)]
    kept = [relax.VarBinding(b.var, substitute(b.value, same)) for b in flow.sequence if b.var not in same]
    return rebuild(func, live(kept, results), results)


def _guarded(guard: relax.Var, flow: Dataflow) -> relax.Var | None:
    """Return the softmax that a `where` guards, provided that its condition tests for vectors that are all -inf."""
    match = flow.match(_GUARDED, guard)
    if match is None:
        return None
    inner, inversions, has_maximum = match[_CONDITION], 0, False
    while (name := op_name(call := flow.values.get(inner))) in _BETWEEN:
        inversions += name == "relax.logical_not"
        has_maximum |= name == "relax.max"
        inner = call.args[0]
    masked = flow.match(_IS_MASKED, inner)
    asks = masked is not None and masked[_SCORES].same_as(match[_SCORES]) and has_maximum and inversions == 2
    return match[_SHARES] if asks and _is_finite(match[_SCORES], flow) else None


def _is_finite(scores: relax.Expr, flow: Dataflow) -> bool:
    """Return True where every vector of scores has an element that is not -inf, overflows aside."""
    call = flow.values.get(scores)
    while op_name(call) in ("relax.reshape", "relax.multiply", "relax.divide", "relax.expand_dims"):
        call = flow.values.get(call.args[0])
    if op_name(call) == "relax.add":
        masks = [array for leaf in operands(call) if (array := array_of(leaf)) is not None]
        if len(masks) != 1 or np.isneginf(masks[0]).all(axis=-1).any():
            return False
        return any(_is_finite(leaf, flow) for leaf in operands(call) if isinstance(leaf, relax.Var))
    return op_name(call) == "relax.matmul"


def _last(func: relax.Function) -> relax.Function:
    """Write a softmax over another axis as one over the last axis between permutations or reshapes."""
    taken, sequence = names_in(func), list[relax.VarBinding]()
    for binding in bindings(func):
        call = binding.value
        make = _SOFTMAXES.get(op_name(call) or "")
        rank = len(static_shape(binding.var)) if make is not None else 0  # other operators may have several results
        if make is None or (axis := int(call.attrs.axis) % rank) == rank - 1:
            sequence.append(binding)
            continue
        axes = [*range(axis), *range(axis + 1, rank), axis]  # channels become the last axis of an image
        moved = _permuted(call.args[0], axes)
        source = relax.DataflowVar(unique(f"{binding.var.name}.to_last", taken), moved.ty)
        shares = infer(make(source, axis=-1))
        result = relax.DataflowVar(unique(f"{binding.var.name}.over_last", taken), shares.ty)
        values = {source: moved, result: shares, binding.var: _permuted(result, [axes.index(a) for a in range(rank)])}
        sequence += [relax.VarBinding(var, with_span(value, call.span)) for var, value in values.items()]
    return rebuild(func, sequence) if len(sequence) > len(bindings(func)) else func


def _permuted(value: relax.Expr, axes: list[int]) -> relax.Call:
    """Return a tensor with permuted axes, by a reshape where only axes of one element move."""
    shape = static_shape(value)
    wide = [axis for axis in axes if shape[axis] > 1]
    is_flat = wide == sorted(wide)
    made = relax.op.reshape(value, [shape[axis] for axis in axes]) if is_flat else relax.op.permute_dims(value, axes)
    return infer(made)


def _scaled_behind(func: relax.Function) -> relax.Function:
    flow, taken = Dataflow(func), names_in(func)
    changed: list[relax.VarBinding] = []
    for binding in flow.sequence:
        found = _factors(binding.value, flow)
        if found is None:
            changed.append(binding)
            continue
        first, second, factor = found
        call = infer(relax.op.matmul(first, second, out_dtype=binding.value.attrs.out_dtype))
        product = relax.DataflowVar(unique(f"{binding.var.name}.product", taken), call.ty)
        span = binding.value.span
        scaled = infer(relax.op.multiply(product, relax.const(factor, "float32")))
        changed += [
            relax.VarBinding(product, with_span(call, span)), relax.VarBinding(binding.var, with_span(scaled, span))
        ]  # fmt: skip
    return rebuild(func, live(changed, outputs(func)))


def _factors(product: relax.Expr, flow: Dataflow) -> tuple[relax.Expr, relax.Expr, float] | None:
    """Return the unscaled operands of a product of two scaled activations, and the product of both factors.

    None where another operator reads a scaled activation.
    """
    if op_name(product) != "relax.matmul":
        return None
    operands_, factor, num_scaled = list(product.args[:]), np.float32(1), 0
    for place, operand in enumerate(product.args[:]):
        match = flow.match(_SCALED, operand)
        if match is not None and len(flow.readers[operand]) == 1:
            operands_[place], factor = match[_ACTIVATION], factor * match.array(_FACTOR).reshape(-1)[0]
            num_scaled += 1
    if num_scaled < 2 or any(array_of(operand) is not None for operand in operands_):
        return None
    return operands_[0], operands_[1], float(factor)
