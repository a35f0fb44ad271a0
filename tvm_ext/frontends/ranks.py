"""Order elements along an axis by their ranks.

The rank of an element is the number of elements ahead of it in the order. This takes n comparisons for each element,
and no scratch except for the ranks. Equal elements keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx


def ranked_indices(
    source: te.Tensor, shape: Sequence[int], axis: int, ranks: tuple[int, int], *, largest_first: bool,
    nan_is_largest: bool = False,
) -> te.Tensor:  # fmt: skip
    """Return int64 indices along an axis of the elements with the ranks [begin, end).

    nan_is_largest: True if NaN counts as larger than every number, False if the elements have no NaN.
    """
    extent, (begin, end) = shape[axis], ranks

    def replaced(at: Sequence[tirx.Expr], i: tirx.Expr) -> list[tirx.Expr]:
        return [i if index == axis else old for index, old in enumerate(at)]

    other = te.reduce_axis((0, extent), "other")

    def rank(*at: tirx.Var) -> tirx.Expr:
        mine, its = source(*at), source(*replaced(at, other))
        better, equal = (its > mine if largest_first else its < mine), its == mine
        if nan_is_largest:
            larger, smaller = (its, mine) if largest_first else (mine, its)
            better = tirx.Or(better, tirx.And(tirx.isnan(larger), tirx.Not(tirx.isnan(smaller))))
            equal = tirx.Or(equal, tirx.And(tirx.isnan(its), tirx.isnan(mine)))
        before = tirx.Or(better, tirx.And(equal, other < at[axis]))
        return te.sum(tirx.Cast("int32", before), axis=other)

    place = te.compute(shape, rank, "place")
    candidate = te.reduce_axis((0, extent), "candidate")

    def index(*at: tirx.Var) -> tirx.Expr:
        wanted = at[axis] + begin if begin else at[axis]
        is_it = place(*replaced(at, candidate)) == tirx.Cast("int32", wanted)
        none = tirx.const(0, "int64")
        return te.max(tirx.if_then_else(is_it, tirx.Cast("int64", candidate), none), axis=candidate)

    found = [end - begin if number == axis else n for number, n in enumerate(shape)]
    return te.compute(found, index, "index")
