"""Attention over time: each row of queries reads a range of rows of keys and values, which ends near the same row.

A mask is the same for each row if it depends only on the distance from the row of the query back to the row of the key.
A causal mask with a window of 3 rows has the distances 0, 1 and 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, bindings, constant, number_of, op_name, returned, static_shape, users

LARGEST_MASKED = -1e4
"""Largest number that a mask adds to scores to remove them: in float32, exp() of a sum with it is zero."""
_PLAIN = frozenset("relax.quantize relax.dequantize relax.astype".split())
_JOINING = frozenset("relax.add relax.subtract relax.multiply relax.divide".split())
_SOFTMAX, _WHERE, _MATMUL = "relax.nn.softmax", "relax.where", "relax.matmul"


@dataclass(frozen=True, kw_only=True)
class ScoreLink:
    """An operator between the product of queries and keys and that of shares and values.

    place: position of its argument that comes from the link before it. mask: numbers [..., queries, keys] that it adds,
    or bool that selects scores; None for other operators.
    """

    binding: relax.VarBinding
    place: int
    mask: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The rows of keys that each row of queries reads.

    first, last: the largest and the smallest distance from a query back to a key, both read.
    by_distance: what the mask adds to scores [..., distances], from the largest distance on; None without a mask.
    outside: what it adds to other scores. is_last_only: whether only the last row of queries reads these rows.
    """

    first: int
    last: int
    by_distance: np.ndarray | None = None
    outside: float = -np.inf
    is_last_only: bool = False

    @property
    def count(self) -> int:
        return self.first - self.last + 1

    def mask(self, queries: int, before: int, after: int) -> np.ndarray | None:
        """Return what a block of neighbouring rows adds to its scores; None where it adds nothing.

        before, after: rows of keys at both ends of the block's range that do not exist.
        """
        if self.by_distance is None and queries == 1:
            return None
        by_distance = np.zeros(self.count, np.float32) if self.by_distance is None else self.by_distance
        keys = queries + self.count - 1
        block = np.full((*by_distance.shape[:-1], queries, keys), self.outside, np.float32)
        for row in range(queries):
            block[..., row, row : row + self.count] = by_distance
        block = block[..., before : keys - after]
        return block if block.any() else None


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeAttention:
    """An attention of queries, keys and values that a model computes.

    keys: with the rows along the last axis. links: from the scores to the shares, in order. product: of the shares and
    the values. reach: as the masks of the links say; a reason where these are not the same for each row.
    """

    queries: relax.Var
    keys: relax.Var
    values: relax.Var
    scores: relax.VarBinding
    links: Sequence[ScoreLink]
    product: relax.VarBinding
    reach: Reach | str

    @property
    def inner(self) -> list[relax.Var]:
        """The values that only the attention itself reads."""
        return [self.scores.var, *(link.binding.var for link in self.links)]

    def write(
        self,
        operands: tuple[relax.Expr, relax.Expr, relax.Expr],
        mask: np.ndarray | None,
        presence: relax.Expr | None,
        bind: Callable[[relax.VarBinding, relax.Expr], relax.Var],
    ) -> relax.Var:
        """Write the attention for other rows of queries, keys and values.

        mask: what it adds to the scores. presence: what it adds for each row of keys, because some do not exist yet.
        bind: binds an expression in the place of a binding of the model.
        """
        queries, keys, values = operands
        made = bind(self.scores, _with(self.scores.value, {0: queries, 1: keys}))
        for link in self.links:
            call = link.binding.value
            if op_name(call) == _SOFTMAX:
                for addend in (None if mask is None else constant(mask), presence):
                    made = made if addend is None else bind(link.binding, relax.op.add(made, addend))
            if link.mask is None:
                made = bind(link.binding, _with(call, {link.place: made}))
        return bind(self.product, _with(self.product.value, {0: made, 1: values}))


def _with(call: relax.Call, changed: Mapping[int, relax.Expr]) -> relax.Call:
    arguments = [changed.get(place, arg) for place, arg in enumerate(call.args)]
    return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span)


def attentions_of(main: relax.Function) -> dict[relax.Var, TimeAttention]:
    """Return the attentions of a function by their results."""
    sequence = bindings(main)
    values, readers, results = {one.var: one for one in sequence}, users(sequence), returned(main)
    found: dict[relax.Var, TimeAttention] = {}
    for binding in sequence:
        if op_name(binding.value) != _MATMUL or not _of_variables(binding.value):
            continue
        links: list[ScoreLink] = []
        var = binding.value.args[0]
        while var in values and len(readers[var]) == 1 and var not in results:
            inner = values[var]
            if op_name(inner.value) == _MATMUL:
                attention = _attention(inner, links[::-1], binding)
                if attention is not None:
                    found[binding.var] = attention
                break
            link = _link(inner)
            if link is None:
                break
            links.append(link)
            var = inner.value.args[link.place]
    return found


def _of_variables(call: relax.Call) -> bool:
    return all(isinstance(arg, relax.Var) for arg in call.args[:2])


def _link(binding: relax.VarBinding) -> ScoreLink | None:
    """Return an operator on scores or shares, or None for operators that an attention does not have."""
    call, name = binding.value, op_name(binding.value)
    if name in _PLAIN:
        return ScoreLink(binding=binding, place=0)
    if name == _SOFTMAX:
        return (
            ScoreLink(binding=binding, place=0)
            if int(call.attrs.axis) % len(static_shape(call)) + 1 == len(static_shape(call))
            else None
        )
    if name == _WHERE:
        kept, place = array_of(call.args[0]), 1 if isinstance(call.args[1], relax.Var) else 2
        other = number_of(call.args[3 - place])
        if kept is None or other is None or other > LARGEST_MASKED or not isinstance(call.args[place], relax.Var):
            return None
        return ScoreLink(binding=binding, place=place, mask=np.where(kept.astype(bool) == (place == 1), 0.0, -np.inf))
    if name not in _JOINING:
        return None
    place = 0 if isinstance(call.args[0], relax.Var) else 1
    array = array_of(call.args[1 - place])
    if array is None or not isinstance(call.args[place], relax.Var):
        return None
    if array.size == 1:
        return ScoreLink(binding=binding, place=place)
    return ScoreLink(binding=binding, place=place, mask=array) if name == "relax.add" else None


def _attention(scores: relax.VarBinding, links: Sequence[ScoreLink], product: relax.VarBinding) -> TimeAttention | None:
    names = [op_name(link.binding.value) for link in links]
    if names.count(_SOFTMAX) != 1 or not _of_variables(scores.value):
        return None
    (queries, keys), end = scores.value.args[:2], names.index(_SOFTMAX)
    masked = [place for place, link in enumerate(links) if link.mask is not None]
    reach: Reach | str
    shape = static_shape(scores.var)
    if len(shape) < 2 or any(place > end for place in masked) or len(masked) > 1:
        return None
    if not masked:
        reach = Reach(first=shape[-1] - 1, last=0, is_last_only=shape[-2] > 1)
    elif any(name not in ("relax.multiply", "relax.divide") for name in names[masked[0] + 1 : end]):
        reach = "rounds its masked scores, so that rows outside of the mask count"
    else:
        mask = links[masked[0]].mask
        assert mask is not None, "it is masked"
        reach = _reach(mask, shape)
        if names[masked[0] + 1 : end] and isinstance(reach, Reach) and reach.by_distance is not None:
            reach = "multiplies its masked scores"
    return TimeAttention(
        queries=queries, keys=keys, values=product.value.args[1], scores=scores, links=links, product=product,
        reach=reach,
    )  # fmt: skip


def _reach(mask: np.ndarray, shape: tuple[int, ...]) -> Reach | str:
    """Return the reach of a mask for scores of that shape, or why it is not the same for each row."""
    queries, keys = shape[-2:]
    leading = (*mask.shape[:-2], queries, keys) if mask.ndim > 1 else (queries, keys)
    whole = np.broadcast_to(mask.astype(np.float32), leading)
    distances = np.arange(queries)[:, None] + keys - queries - np.arange(keys)[None, :]
    is_read = (whole > LARGEST_MASKED).reshape(-1, queries, keys)
    if not is_read.any():
        return "masks all of its rows"
    first, last = (int(limit(distances[is_read.any(0)])) for limit in (np.max, np.min))
    in_range = (distances <= first) & (distances >= last)
    if not (is_read == in_range).all():
        return "has a mask that is not the same for each row"
    by_distance = np.stack([whole[..., distances == d][..., 0] for d in range(first, last - 1, -1)], -1)
    added = np.zeros_like(whole)
    for place, distance in enumerate(range(first, last - 1, -1)):
        added[..., distances == distance] = by_distance[..., place, None]
    if (added[..., in_range] != whole[..., in_range]).any():
        return "has a mask that is not the same for each row"
    outside = float(whole[..., ~in_range].max()) if not in_range.all() else -np.inf
    return Reach(first=first, last=last, by_distance=by_distance if by_distance.any() else None, outside=outside)
