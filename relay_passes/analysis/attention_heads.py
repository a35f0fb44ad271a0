"""Find attention in a module of composites.

All heads are computed together: queries, keys and values each come from a dense layer, [1, tokens, heads * depth], and
are reshaped to [1, tokens, heads, depth].
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

import tvm
from tvm import relax

from relay_passes.analysis.output_channels import SCALED, computing_channels
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, op_name, static_shape
from relay_passes.patterns import Dataflow

HEAD_AXIS = 2
"""Axis of the heads in tensors as they are stored, [1, tokens, heads, depth]."""
_EINSUM, _SOFTMAX = "relax.einsum", "relax.nn.softmax"


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
        others = {op_name(one.value) for one in inner} - {name} - SCALED - self.elementwise
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
