"""Find attention in a module of composites, and compute dense layers for some of their output channels.

All heads are computed together: queries, keys and values each come from a dense layer, [1, tokens, heads * depth], and
are reshaped to [1, tokens, heads, depth].
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.composites import composite_of
from relay_passes.dataflow import (
    array_of,
    bindings,
    build,
    constant,
    infer,
    op_name,
    outputs,
    static_shape,
    with_span,
)
from relay_passes.patterns import Dataflow
from tvm_ext.core.row_access import ColumnOperator, Columns

HEAD_AXIS = 2
"""Axis of the heads in tensors as they are stored, [1, tokens, heads, depth]."""
_EINSUM, _SOFTMAX = "relax.einsum", "relax.nn.softmax"
_SCALED = frozenset({"relax.quantize", "relax.dequantize"})


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A dense layer whose output channels are ordered by head, and the view that separates the heads."""

    dense: relax.VarBinding
    view: relax.VarBinding


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The bindings of an attention, each read only by the next.

    scores, shares, sums: for all heads together.
    """

    queries: Projection
    keys: Projection
    values: Projection
    scores: relax.VarBinding
    shares: relax.VarBinding
    sums: relax.VarBinding

    @property
    def heads(self) -> int:
        return static_shape(self.sums.var)[HEAD_AXIS]

    @property
    def projections(self) -> tuple[Projection, ...]:
        return (self.keys, self.values, self.queries)

    @property
    def inner(self) -> tuple[relax.VarBinding, ...]:
        """All bindings except the last."""
        return (*(b for one in self.projections for b in (one.dense, one.view)), self.scores, self.shares)


def attentions(mod: tvm.IRModule, elementwise: Set[str]) -> list[Attention]:
    """Return every attention of a module whose heads are independent, and whose dense layers can be cut.

    elementwise: names of the operators that may follow within a composite.
    """
    return list(_Finder(mod=mod, elementwise=elementwise, flow=Dataflow(mod["main"])).found())


@dataclass(frozen=True, kw_only=True)
class _Finder:
    mod: tvm.IRModule
    elementwise: Set[str]
    flow: Dataflow

    def found(self) -> Iterator[Attention]:
        for sums in self.flow.sequence:
            if not self._multiplies_heads(sums):
                continue
            shares = self._only(sums.value.args[0])
            scores = self._only(shares.value.args[0]) if shares and self._divides(shares) else None
            if shares is None or scores is None or not self._multiplies_heads(scores):
                continue
            heads = static_shape(sums.var)[HEAD_AXIS]
            queries, keys = (self._projection(arg, heads) for arg in scores.value.args)
            values = self._projection(sums.value.args[1], heads)
            if queries and keys and values:
                yield Attention(queries=queries, keys=keys, values=values, scores=scores, shares=shares, sums=sums)

    def _only(self, value: relax.Expr) -> relax.VarBinding | None:
        """Return the composite's call that computes a value, where the value has a single reader, or None."""
        binding = self.flow.made.get(value)
        if binding is None or self.flow.sole_reader(value) is None:
            return None
        return binding if composite_of(self.mod, binding.value) is not None else None

    def _multiplies_heads(self, binding: relax.VarBinding) -> bool:
        """Return True for products of two activations in which each head is multiplied only with the same head."""
        product = self._operator(binding, _EINSUM)
        if product is None or len(binding.value.args) != 2:
            return False
        terms, result = str(product.attrs.subscripts).replace(" ", "").split("->")
        axes = [*terms.split(","), result]
        return all(len(one) == 4 and one[HEAD_AXIS] == result[HEAD_AXIS] for one in axes)

    def _divides(self, binding: relax.VarBinding) -> bool:
        """Return True for a softmax over the elements of each head."""
        softmax = self._operator(binding, _SOFTMAX)
        return softmax is not None and len(binding.value.args) == 1 and int(softmax.attrs.axis) in (-1, 3)

    def _operator(self, binding: relax.VarBinding, name: str) -> relax.Call | None:
        """Return the single operator of that name in a composite that is otherwise element-wise, or None."""
        composite = composite_of(self.mod, binding.value)
        inner = bindings(composite) if composite is not None else []
        calls = [one.value for one in inner if op_name(one.value) == name]
        others = {op_name(one.value) for one in inner} - {name} - _SCALED - self.elementwise
        return calls[0] if len(calls) == 1 and not others else None

    def _projection(self, value: relax.Expr, heads: int) -> Projection | None:
        view = self._only(value)
        shown = bindings(self.mod[view.value.op]) if view else []
        if view is None or len(shown) != 1 or op_name(shown[0].value) != "relax.reshape":
            return None
        dense, shape = self._only(view.value.args[0]), static_shape(view.var)
        if dense is None or len(dense.value.args) != 1 or len(shape) != 4 or shape[HEAD_AXIS] != heads:
            return None
        before = static_shape(dense.var)
        if before != (1, shape[1], heads * shape[3]):
            return None
        cut = computing_channels(self.mod[dense.value.op], (0, shape[3]))
        return Projection(dense=dense, view=view) if cut is not None else None


_MATMUL = "relax.matmul"


def channels_of(composite: relax.Function, elementwise: AbstractSet[str]) -> ColumnOperator | None:
    """Return the output channels of a vector times constant weights, or None for everything else.

    elementwise: names of the operators that may follow. Every channel reads the whole input.
    """
    names = [op_name(binding.value) or "" for binding in bindings(composite)]
    if names.count(_MATMUL) != 1 or set(names) - {_MATMUL} - _SCALED - elementwise:
        return None
    shape = static_shape(outputs(composite)[0])  # each of these operators has a single result
    if len(shape) != 2 or shape[0] != 1 or computing_channels(composite, (0, shape[1])) is None:
        return None
    return ColumnOperator(num_columns=shape[1], readers=(None,) * len(composite.params))


def computing_channels(composite: relax.Function, made: Columns) -> relax.Function | None:
    """Return the composite for some channels, or None where its weights or later operands are not constant."""
    (result,) = outputs(composite)
    channels = static_shape(result)[-1]
    new = {param: relax.Var(param.name, param.ty, param.span) for param in composite.params}
    cut = set[relax.Var]()
    """Values that have only the wanted channels."""
    sequence: list[relax.VarBinding] = []
    for binding in bindings(composite):
        call, name = binding.value, op_name(binding.value)
        has_channels = _has_channels(call, name, cut)
        if has_channels is None:
            return None
        shared = _shared_operands(call, name)
        args = [
            _some(arg, channels, made) if has_channels and position not in shared else arg
            for position, arg in enumerate(call.args)
        ]
        args = [new.get(arg, arg) if isinstance(arg, relax.Var) else arg for arg in args]
        value = with_span(infer(relax.Call(call.op, args, call.attrs, call.ty_args, call.span)), call.span)
        new[binding.var] = var = relax.Var(binding.var.name, value.ty, binding.var.span)
        sequence.append(relax.VarBinding(var, value))
        if has_channels:
            cut.add(binding.var)
    if result not in cut or static_shape(new[result])[-1] != made[1] - made[0]:
        return None
    return build([new[param] for param in composite.params], sequence, [new[result]], attrs=composite.attrs)


def _has_channels(call: relax.Call, name: str | None, cut: AbstractSet[relax.Var]) -> bool | None:
    """Return True where a result has the layer's output channels, or None where they cannot be separated."""
    variables = [arg for arg in call.args if isinstance(arg, relax.Var)]
    if name == _MATMUL:
        weight = call.args[1]
        known = weight in cut if isinstance(weight, relax.Var) else array_of(weight) is not None
        return True if known and call.args[0] not in cut else None
    if not variables:  # a quantized constant, which is weights or bias
        return True
    inside = [var in cut for var in variables]
    return all(inside) if all(inside) or not any(inside) else None


def _shared_operands(call: relax.Call, name: str | None) -> range:
    """Return the positions of operands that all channels share: the vector, or parameters along another axis."""
    if name == _MATMUL:
        return range(1)
    if name in _SCALED and int(call.attrs.axis) not in (-1, len(static_shape(call.args[0])) - 1):
        return range(1, 3)
    return range(0)


def _some(arg: relax.Expr, channels: int, made: Columns) -> relax.Expr:
    """Return a constant's part for some channels, or the constant itself where all channels share it."""
    array = array_of(arg)
    if array is None or not array.ndim or array.shape[-1] != channels:
        return arg
    return constant(np.ascontiguousarray(array[..., made[0] : made[1]]))
