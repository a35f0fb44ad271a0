"""Cuts of an order of operators into sequences whose rows run in series, so that few bytes are alive.

A cut is a list of segments of the order. A segment of one operator runs whole. The operators of a longer one run row
by row (`tvm_ext.core.row_sequence`): what only they read is a ring of a few rows, and a result that outlives the
segment may grow over an operand that dies in it. A segment's bytes are those, and what else is alive across it. The
best cut follows from the best cuts of all shorter orders: the cheapest within a budget, or the one of least bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay_passes.solvers.split.segments import Segment, Segments

CLOSEST = 512
"""Resolution of a frontier: from a cut to the next one, bytes fall by more than one part in this many."""

Price = Callable[[Segment], tuple[int, int]]


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
    least = cheapest_cut(len(segments.graph.nodes), segments, lambda s: (s.num_bytes, s.price)).peak_bytes
    return cheapest_cut(len(segments.graph.nodes), segments, lambda s: (s.num_bytes > least, s.price))


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
    found = cheapest_cut(len(segments.graph.nodes), segments, lambda s: (s.num_bytes > budget_bytes, s.price))
    return found if found.peak_bytes <= budget_bytes else None


def cheapest_cut(count: int, segments: Segments, price: Price) -> Split:
    """The cut of so many operators of least price: of first parts the largest counts, second parts add up."""
    best: list[tuple[tuple[int, int], tuple[Segment, ...]]] = [((0, 0), ())]
    for end in range(1, count + 1):
        choices: list[tuple[tuple[int, int], int, Segment]] = []
        for begin in range(end - 1, -1, -1):
            candidates = segments.of(begin, end)
            if not candidates and begin < end - 1:
                break
            before, _ = best[begin]
            for segment in candidates:
                first, second = price(segment)
                choices.append(((max(before[0], int(first)), before[1] + second), begin, segment))
        least, begin, segment = min(choices, key=lambda choice: choice[0])
        best.append((least, (*best[begin][1], segment)))
    return Split(segments=best[count][1])
