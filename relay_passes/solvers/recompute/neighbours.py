"""Recomputation improved where neighbouring repeats can be put back at less cost.

Some neighbouring repeats of a sequence are left out, and a program over events puts others in their place, as far as
these cost less. What the program does not count, the bytes at repeats themselves, the search for repeats puts right.
So one neighbourhood after the other improves, those with the dearest repeats first, until none does.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.events import add_repeats
from relay_passes.solvers.recompute.search import Recomputation, recompute, repeats_cost

REPEATS = (16, 8)
"""Repeats per neighbourhood, then per smaller one; each begins in the middle of the one before."""
MOST_NODES = 600
"""Limit on a graph; on larger ones, programs that end in seconds hold too few of the possible repeats to find any."""
MOST_PROGRAMS = 6


def improve_neighbours(graph: Graph, costs: Sequence[int], budget_bytes: int, found: Recomputation) -> Recomputation:
    """The same or a cheaper sequence within the budget, over the same order of first runs."""
    best = found
    tried: set[tuple[int, ...]] = set()
    for _ in range(MOST_PROGRAMS if len(graph.nodes) <= MOST_NODES else 0):
        repeats = _dearest(best.sequence, costs, tried)
        if repeats is None:
            break
        tried.add(tuple(best.sequence[place] for place in repeats))
        left_out = set(repeats)
        fewer = [node for place, node in enumerate(best.sequence) if place not in left_out]
        spent = sum(costs[best.sequence[place]] for place in repeats)
        sequence = add_repeats(graph, fewer, costs, budget_bytes, spent - 1)
        candidate = recompute(graph, sequence, costs, budget_bytes) if sequence else None
        if candidate is not None and (cost := repeats_cost(candidate.sequence, costs)) < best.cost:
            peak = peak_bytes(graph, candidate.sequence)
            best = Recomputation(sequence=candidate.sequence, peak_bytes=peak, cost=cost)
    return best


def _dearest(sequence: Sequence[int], costs: Sequence[int], tried: set[tuple[int, ...]]) -> list[int] | None:
    """Positions of the neighbours that cost the most, of those that were not tried; None if all were."""
    seen: set[int] = set()
    repeats = [place for place, node in enumerate(sequence) if node in seen or seen.add(node)]
    for length in REPEATS:
        firsts = range(0, max(len(repeats) - length // 2, 1), length // 2)
        groups = [repeats[first : first + length] for first in firsts]
        left = [group for group in groups if group and tuple(sequence[place] for place in group) not in tried]
        if left:
            return max(left, key=lambda group: sum(costs[sequence[place]] for place in group))
    return None
