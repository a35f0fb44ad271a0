"""Replace reshapes in a row, and permutations among them that cancel each other, by a single reshape.

Rewrite:
    a = permute_dims(x, [0, 3, 1, 2]); b = squeeze(a, [3]); y = permute_dims(b, [0, 2, 1])
      ->  y = reshape(x), where x is [1, T, 1, C]
    A convolution over time whose exporter wants its frames last, followed by a transpose, is read where it is stored.
Leaves alone: chains of moves in which elements change their order, results of the model, and tensors of more than
`MOST_ELEMENTS` elements.
"""

from __future__ import annotations

from math import prod

import numpy as np
import tvm
from tvm import relax

from relay_passes.composites import call_new, composite_of
from relay_passes.dataflow import (
    bindings,
    build,
    infer,
    is_dataflow,
    op_name,
    permuted_axes,
    static_shape,
    with_main,
    with_values,
)
from relay_passes.patterns import Dataflow
from tvm_ext.core.decisions.composites import CompositeKind

MOST_ELEMENTS = 1 << 20
"""Elements of a tensor whose order is computed; each move of a larger one would take too long."""
_VIEWS = frozenset(f"relax.{name}" for name in "reshape expand_dims squeeze flatten".split())


@tvm.transform.module_pass(opt_level=0, name="CancelMoves")
class CancelMoves:
    """Let operators read a tensor where it is stored if permutations only move its elements there and back."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        flow, module = Dataflow(main), mod.clone()
        reshaped = {
            binding.var: _reshaped(module, binding, source)
            for binding in flow.sequence
            if binding.var not in flow.returned and (source := _source(mod, flow, binding)) is not None
        }
        return with_main(module, with_values(main, reshaped)) if reshaped else mod


def _source(mod: tvm.IRModule, flow: Dataflow, binding: relax.VarBinding) -> relax.Var | None:
    """Return the first variable of the chain of moves that ends at a binding and keeps the order of elements."""
    if not isinstance(binding.var.ty, relax.TensorType) or prod(static_shape(binding.var)) > MOST_ELEMENTS:
        return None
    chain: list[relax.Call] = []
    found: relax.Var | None = None
    last: relax.VarBinding | None = binding
    while last is not None and (move := _move(mod, last.value)) is not None:
        chain.insert(0, move)
        source = last.value.args[0]
        if len(chain) > 1 and _keeps_order(chain, static_shape(source)):
            found = source
        last = flow.made.get(source)
    return found


def _move(mod: tvm.IRModule, value: relax.Expr) -> relax.Call | None:
    """Return the permutation or the reshape that a composite of a single operator computes; None for others."""
    composite = composite_of(mod, value)
    if composite is None or len(value.args) != 1 or not isinstance(value.args[0], relax.Var):
        return None
    inner = bindings(composite)
    is_move = len(inner) == 1 and (op_name(inner[0].value) in _VIEWS or op_name(inner[0].value) == "relax.permute_dims")
    return inner[0].value if is_move else None


def _keeps_order(chain: list[relax.Call], shape: tuple[int, ...]) -> bool:
    """Return True if the moves, one after the other, leave all elements in their order."""
    elements = np.arange(prod(shape)).reshape(shape)
    moved = elements
    for move in chain:
        is_permute = op_name(move) == "relax.permute_dims"
        moved = moved.transpose(permuted_axes(move)) if is_permute else moved.reshape(static_shape(move))
    return bool((moved.reshape(-1) == elements.reshape(-1)).all())


def _reshaped(module: tvm.IRModule, binding: relax.VarBinding, source: relax.Var) -> relax.Call:
    """Return a call of a composite that reshapes the source to what the binding computes."""
    callee = binding.value.op
    composite, param = module[callee], relax.Var(source.name, source.ty)
    (inner,) = bindings(composite)
    value = infer(relax.op.reshape(param, list(static_shape(inner.var))))
    function = build([param], [relax.VarBinding(inner.var, value)], [inner.var], attrs=composite.attrs)
    function = CompositeKind(kind="reshape", is_primitive=True).write(function)
    del module[callee]
    return call_new(module, callee.name_hint, function, [source], binding.value.span)
