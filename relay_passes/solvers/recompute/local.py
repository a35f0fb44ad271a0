"""Local search over recomputations: some neighbouring repeats are left out, and the search goes on from there anew.

Where it is not within the budget any more, it takes other repeats than before, for costs are disturbed a little each
time. What comes out cheaper is kept. Random numbers come from a fixed seed: the same problem gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.search import Rank, Recomputation, recompute, repeats_cost

ROUNDS = 40
MOST_WORK = 25_000
"""Nodes of all rounds together, in units of their repeats: ends the search sooner on large graphs."""
LEFT_OUT = (2, 12)
"""Least and most repeats that one round leaves out."""
DISTURBED = 0.7
"""Costs of one round are up to e to this power higher or lower."""


def improve_locally(
    graph: Graph, costs: Sequence[int], budget_bytes: int, found: Recomputation, *, rank: Rank | None = None
) -> Recomputation:
    """The same or a cheaper sequence within the budget, over the same order of first runs."""
    random = np.random.default_rng(0)
    best = found
    work = MOST_WORK
    for _ in range(ROUNDS):
        repeats = _repeats(best.sequence)
        if not repeats or work <= 0:
            break
        count = int(random.integers(*LEFT_OUT))
        first = int(random.integers(len(repeats)))
        left_out = set(repeats[first : first + count])
        fewer = [node for position, node in enumerate(best.sequence) if position not in left_out]
        factors = np.exp(random.uniform(-DISTURBED, DISTURBED, len(costs)))
        disturbed = [round(cost * factor) for cost, factor in zip(costs, factors, strict=True)]
        work -= len(fewer) * len(left_out)
        candidate = recompute(graph, fewer, disturbed, budget_bytes, rank=rank)
        if candidate is not None and (cost := repeats_cost(candidate.sequence, costs)) < best.cost:
            best = Recomputation(
                sequence=candidate.sequence, peak_bytes=peak_bytes(graph, candidate.sequence), cost=cost
            )
    return best


def _repeats(sequence: Sequence[int]) -> list[int]:
    """Positions at which a node runs again."""
    seen: set[int] = set()
    return [position for position, node in enumerate(sequence) if node in seen or seen.add(node)]
