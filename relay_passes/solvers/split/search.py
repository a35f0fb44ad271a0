"""Where to cut an order of operators into sequences whose rows run in series, so that few bytes are alive.

A cut is a list of segments of the order. A segment of one operator runs whole. The operators of a longer one run row
by row (`tvm_ext.core.row_sequence`): what only they read is a ring of a few rows, and a result that outlives the
segment may grow over an operand that dies in it. A segment's bytes are those, and what else is alive across it. The
best cut follows from the best cuts of all shorter orders: the cheapest within a budget, or the one of least bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relay_passes.solvers.graph import Graph
from relay_passes.solvers.split.segments import RowFacts, Segment, Segments

HELD_INPUT_COST = 1 << 40
"""Instructions that a streamed input costs which is taken in whole: more than any cut that takes it by rows."""

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


def split(graph: Graph, rows: RowFacts, budget_bytes: int | None) -> Split:
    """The cheapest cut within a budget; without a budget, or where none fits, the one that needs the fewest bytes."""
    return cut(Segments(graph, rows), budget_bytes)


def cut(segments: Segments, budget_bytes: int | None) -> Split:
    """The same of the segments' own ways to run."""
    count = len(segments.graph.nodes)

    def cost(segment: Segment) -> int:
        return segment.cost + HELD_INPUT_COST * segment.held_inputs

    if budget_bytes is not None:
        found = cheapest_cut(count, segments, lambda s: (s.num_bytes > budget_bytes, cost(s)))
        if found.peak_bytes <= budget_bytes:
            return found
    least = cheapest_cut(count, segments, lambda s: (s.num_bytes, cost(s))).peak_bytes
    return cheapest_cut(count, segments, lambda s: (s.num_bytes > least, cost(s)))


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
