"""Cuts of an order of operators into sequences whose rows run in series, so that few bytes are alive.

A cut is a list of segments of the order. A segment of one operator runs whole. The operators of a longer one run row
by row (`tvm_ext.core.row_sequence`): what only they read is a ring of a few rows, and a result that outlives the
segment may grow over an operand that dies in it. A segment's bytes are those, and what else is alive across it. The
best cut follows from the best cuts of all shorter orders: the cheapest within a budget, or the one of least bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relay_passes.solvers.split.segment import Ending, Segment
from relay_passes.solvers.split.segments import Segments

CLOSEST = 512
"""Resolution of a frontier: from a cut to the next one, bytes fall by more than one part in this many."""

Price = Callable[[Ending], tuple[np.ndarray, np.ndarray]]
"""Two numbers for each of the segments with an end."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Segments that cover the order; peak_bytes: the most that one needs; cost: what splitting adds, modelled.

    overhead: of that, what calls and asking for rows take.
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
        """Price that ranks it: its cost, and streamed inputs that it holds whole."""
        return sum(segment.price for segment in self.segments)


def cut(segments: Segments, budget_bytes: int | None) -> Split:
    """The cheapest cut within a budget; without a budget, or where none fits, the one that needs the fewest bytes."""
    found = _within(segments, budget_bytes) if budget_bytes is not None else None
    if found is not None:
        return found
    least = cheapest_cut(len(segments.graph.nodes), segments, lambda e: (e.num_bytes, e.prices)).peak_bytes
    return cheapest_cut(len(segments.graph.nodes), segments, lambda e: (e.num_bytes > least, e.prices))


def frontier(segments: Segments) -> tuple[Split, ...]:
    """The cheapest cuts within smaller and smaller budgets, from one as large as can be to the fewest bytes."""
    found, budget = list[Split](), sum(segments.graph.sizes) + max(segments.whole, default=0)
    while better := _within(segments, budget):
        found.append(better)
        budget = better.peak_bytes - 1 - better.peak_bytes // CLOSEST
    least = cut(segments, None)
    return (*found, least) if not found or least.peak_bytes < found[-1].peak_bytes else tuple(found)


def _within(segments: Segments, budget_bytes: int) -> Split | None:
    """The cheapest cut within a budget; None where none is."""
    found = cheapest_cut(len(segments.graph.nodes), segments, lambda e: (e.num_bytes > budget_bytes, e.prices))
    return found if found.peak_bytes <= budget_bytes else None


def cheapest_cut(count: int, segments: Segments, price: Price) -> Split:
    """The cut of so many operators of least price: of first parts the largest counts, second parts add up."""
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
