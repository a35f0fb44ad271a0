"""Cut an order of operators into sequences whose rows run in series, so that few bytes are alive.

A cut is a list of segments of the order. A segment of one operator runs whole. The operators of a longer segment run
row by row (`tvm_ext.core.row_sequence`): a result that only they read is a ring of a few rows, and a result that
outlives the segment may overwrite an operand that dies in it. The bytes of a segment are these, and everything else
that is alive across it. The best cut follows from the best cuts of all shorter orders, by dynamic programming: the
cheapest cut within a budget, or the cut with the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relay_passes.solvers.split.segment import Ending, Segment
from relay_passes.solvers.split.segments import Segments

CLOSEST = 512
"""Resolution of a frontier: bytes fall by more than this fraction, 1/512, from each cut to the next."""

Price = Callable[[Ending], tuple[np.ndarray, np.ndarray]]
"""Returns two numbers for each of the segments with an end."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Segments that cover the order.

    peak_bytes: the most bytes of a segment.
    cost: modelled instructions that splitting adds.
    overhead: the part of the cost for calls and for deciding which rows are next.
    """

    segments: tuple[Segment, ...]

    @property
    def peak_bytes(self) -> int:
        return max((segment.num_bytes for segment in self.segments), default=0)

    @property
    def overhead(self) -> int:
        return sum(segment.overhead for segment in self.segments)

    @property
    def cost(self) -> int:
        return sum(segment.cost for segment in self.segments)

    @property
    def price(self) -> int:
        """Price by which cuts are ranked: the cost, plus a penalty for streamed inputs that are held whole."""
        return sum(segment.price for segment in self.segments)


def cut(segments: Segments, budget_bytes: int | None) -> Split:
    """Return the cheapest cut within a budget.

    Without a budget, or where no cut fits, it is the cut with the fewest bytes.
    """
    found = _within(segments, budget_bytes) if budget_bytes is not None else None
    if found is not None:
        return found
    least = cheapest_cut(len(segments.graph.nodes), segments, lambda e: (e.num_bytes, e.prices)).peak_bytes
    return cheapest_cut(len(segments.graph.nodes), segments, lambda e: (e.num_bytes > least, e.prices))


def frontier(segments: Segments) -> tuple[Split, ...]:
    """Return the cheapest cuts within smaller and smaller budgets, from an unlimited budget to the fewest bytes."""
    found, budget = list[Split](), sum(segments.graph.sizes) + max(segments.whole, default=0)
    while better := _within(segments, budget):
        found.append(better)
        budget = better.peak_bytes - 1 - better.peak_bytes // CLOSEST
    least = cut(segments, None)
    return (*found, least) if not found or least.peak_bytes < found[-1].peak_bytes else tuple(found)


def _within(segments: Segments, budget_bytes: int) -> Split | None:
    """Return the cheapest cut within a budget, or None."""
    found = cheapest_cut(len(segments.graph.nodes), segments, lambda e: (e.num_bytes > budget_bytes, e.prices))
    return found if found.peak_bytes <= budget_bytes else None


def cheapest_cut(count: int, segments: Segments, price: Price) -> Split:
    """Return the cut of `count` operators with the least price.

    Of the first numbers of prices the largest counts, and the second numbers add up.
    """
    worst, total = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    last: list[Segment] = []
    for end in range(1, count + 1):
        ending = segments.ending(end)
        first, second = price(ending)
        firsts, seconds = np.maximum(worst[ending.begins], first), total[ending.begins] + second
        at_best = np.flatnonzero(firsts == firsts.min())
        best = at_best[seconds[at_best].argmin()]
        worst[end], total[end] = firsts[best], seconds[best]
        last.append(ending.segments[best])
    found: list[Segment] = []
    while count:
        found.append(last[count - 1])
        count = found[-1].begin
    return Split(segments=tuple(reversed(found)))
