"""Remove the guards and the split scales that a framework puts around the scores of attention."""

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
from tvm_ext.core.names import unique

Values = Mapping[relax.Var, relax.Expr]
_BETWEEN = ("relax.logical_not", "relax.astype", "relax.max")


@tvm.transform.module_pass(opt_level=0, name="SimplifySoftmax")
class SimplifySoftmax:
    """Reduce attention, as PyTorch decomposes it, to a product, one factor and a softmax.

    Rewrite:
        where(not any(not (s == -inf)), 0, softmax(s))   ->   softmax(s)             if no vector of s is all -inf
        matmul(q * 0.5, k * 0.5)                         ->   matmul(q, k) * 0.25
        A product of two activations is -inf only on overflow. The same holds for its sum with a constant mask that
        keeps at least one element of every vector.
    Leaves alone: guards of other scores, masks that are activations, factors that are not single positive numbers.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, lambda func: _scaled_behind(_unguarded(func)))


def _unguarded(func: relax.Function) -> relax.Function:
    sequence = bindings(func)
    values = {binding.var: binding.value for binding in sequence}
    same = {b.var: found for b in sequence if (found := _guarded(b.value, values)) is not None}
    if not same:
        return func
    results = [substitute(result, same) for result in outputs(func)]
    kept = [relax.VarBinding(b.var, substitute(b.value, same)) for b in sequence if b.var not in same]
    return rebuild(func, live(kept, results), results)


def _guarded(value: relax.Expr, values: Values) -> relax.Var | None:
    """Return the softmax that a `where` guards, provided that its condition tests for vectors that are all -inf."""
    if op_name(value) != "relax.where":
        return None
    condition, zeros, shares = value.args
    softmax = values.get(shares)
    if op_name(softmax) != "relax.nn.softmax" or not _is_zero(zeros, values):
        return None
    scores = softmax.args[0]
    inner, inversions, has_maximum = values.get(condition), 0, False
    while (name := op_name(inner)) in _BETWEEN:
        inversions += name == "relax.logical_not"
        has_maximum |= name == "relax.max"
        inner = values.get(inner.args[0])
    asks = op_name(inner) == "relax.equal" and inner.args[0].same_as(scores) and has_maximum and inversions == 2
    if not asks or not np.array_equal(array_of(inner.args[1]), np.float32(-np.inf)):
        return None
    return shares if _is_finite(scores, values) else None


def _is_zero(value: relax.Expr, values: Values) -> bool:
    call = values.get(value)
    number = call.args[1] if op_name(call) == "relax.full_like" else value
    array = array_of(number)
    return array is not None and not array.any()


def _is_finite(scores: relax.Expr, values: Values) -> bool:
    """Return True where every vector of scores has an element that is not -inf, overflows aside."""
    call = values.get(scores)
    while op_name(call) in ("relax.reshape", "relax.multiply", "relax.divide", "relax.expand_dims"):
        call = values.get(call.args[0])
    if op_name(call) == "relax.add":
        masks = [array for leaf in operands(call) if (array := array_of(leaf)) is not None]
        if len(masks) != 1 or np.isneginf(masks[0]).all(axis=-1).any():
            return False
        return any(_is_finite(leaf, values) for leaf in operands(call) if isinstance(leaf, relax.Var))
    return op_name(call) == "relax.matmul"


def _scaled_behind(func: relax.Function) -> relax.Function:
    sequence = bindings(func)
    values, readers = {binding.var: binding.value for binding in sequence}, users(sequence)
    taken = {binding.var.name for binding in sequence} | {param.name for param in func.params}
    changed: list[relax.VarBinding] = []
    for binding in sequence:
        found = _factors(binding.value, values, readers)
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


def _factors(
    value: relax.Expr, values: Values, readers: Mapping[relax.Var, list[relax.VarBinding]]
) -> tuple[relax.Expr, relax.Expr, float] | None:
    """Return the unscaled operands of a product of two scaled activations, and the product of both factors.

    None where another operator reads a scaled activation.
    """
    if op_name(value) != "relax.matmul":
        return None
    operands_, factor, num_scaled = list(value.args[:]), np.float32(1), 0
    for place, operand in enumerate(value.args[:]):
        call = values.get(operand) if isinstance(operand, relax.Var) else None
        if op_name(call) != "relax.multiply" or len(readers.get(operand, [])) != 1:
            continue
        number = array_of(call.args[1])
        if number is not None and number.size == 1 and number.reshape(-1)[0] > 0:
            operands_[place], factor = call.args[0], factor * number.reshape(-1)[0]
            num_scaled += 1
    if num_scaled < 2 or any(array_of(operand) is not None for operand in operands_):
        return None
    return operands_[0], operands_[1], float(factor)
