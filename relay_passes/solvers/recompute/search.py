"""Sequences of operators that compute some results again instead of keeping them, within a budget of live bytes.

A sequence names nodes in the order they run; a node that stands there again computes its results again. A read takes
what was written last, so a value is alive from each time it is written to the last read before it is written again.

The search starts from an order without repeats. Where the most bytes above the budget are alive, it looks at every
value that waits there for a later reader, and computes it again right before that reader, together with what this
needs; it takes the repeat that removes most of the excess for its cost, until nothing exceeds the budget. Then it
leaves out whatever turned out not to be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from relay_passes.solvers.graph import Graph, live_bytes, peak_bytes, profile, spans_of
from relay_passes.solvers.recompute.facts import facts_of
from relay_passes.solvers.recompute.repeats import excess, promising, repeats_at

TRIED = 12
"""Repeats that are looked at exactly, of those that seem best."""
TRIED_OF_RANKED = 4
"""The same, where a guide has ranked them."""
LEAST_WORTH = 0.05
"""Worth of a repeat that a guide expects in no plan, beside 1 for one that it is sure of."""
PEAKS = 24
"""Positions above the budget, the highest first, that are looked at for a repeat that helps."""


Rank = Callable[[np.ndarray], np.ndarray]
"""float[repeats, facts] -> float[repeats]: how likely each is part of a good plan, from `facts_of`."""


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """sequence: nodes in the order they run. cost: of all its repeats.

    proved: whether no sequence costs less of those that run no node more than twice. at_least: no sequence costs less
    that keeps the order of first runs.
    """

    sequence: tuple[int, ...]
    peak_bytes: int
    cost: int
    proved: bool = False
    at_least: int = 0


def repeats_cost(sequence: Sequence[int], costs: Sequence[int]) -> int:
    """Cost of a sequence beyond running each node once."""
    return sum(costs[node] for node in sequence) - sum(costs[node] for node in set(sequence))


def recompute(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int, *, rank: Rank | None = None
) -> Recomputation | None:
    """A sequence within the budget that keeps the given order of first runs; None if the search finds none.

    costs: of each node, when it runs again. rank: of a guide, to look at fewer repeats.
    """
    sequence = list(order)
    while (better := _improved(graph, sequence, costs, budget_bytes, rank)) is not None:
        sequence = better
    if peak_bytes(graph, sequence) > budget_bytes:
        return None
    sequence = _without_needless(graph, sequence, costs, budget_bytes)
    return Recomputation(
        sequence=tuple(sequence), peak_bytes=peak_bytes(graph, sequence), cost=repeats_cost(sequence, costs)
    )


def _improved(
    graph: Graph, sequence: list[int], costs: Sequence[int], budget_bytes: int, rank: Rank | None
) -> list[int] | None:
    """The sequence with the repeat that removes most excess for its cost; None where there is none to remove."""
    spans = spans_of(graph, sequence)
    live = np.array(profile(graph, sequence, spans), dtype=np.int64)
    before = excess(live, budget_bytes)
    for position in positions_above(live, budget_bytes):
        repeats = promising(list(repeats_at(graph, spans, live, position, budget_bytes)), costs)
        worth = np.ones(len(repeats))
        if rank is not None and repeats:
            worth = np.maximum(rank(facts_of(repeats, costs, live, position, budget_bytes)), LEAST_WORTH)
            promised = worth * [repeat.removed / (repeat.cost(costs) + 1) for repeat in repeats]
            better = np.argsort(-promised, kind="stable")
            repeats, worth = [repeats[index] for index in better], worth[better]
        best: tuple[float, list[int]] | None = None
        for repeat, weight in zip(repeats[: TRIED if rank is None else TRIED_OF_RANKED], worth, strict=False):
            candidate = repeat.within(sequence)
            left = excess(live_bytes(graph, candidate), budget_bytes)
            gain = weight * (before - left) / (repeat.cost(costs) + 1)
            if left < before and (best is None or gain > best[0]):
                best = gain, candidate
        if best is not None:
            return best[1]
    return None


def positions_above(live: np.ndarray, budget_bytes: int) -> list[int]:
    """Positions above the budget, the highest first, as many as are looked at."""
    above = [int(position) for position in np.argsort(-live, kind="stable") if live[position] > budget_bytes]
    return above[:PEAKS]


def _without_needless(graph: Graph, sequence: list[int], costs: Sequence[int], budget_bytes: int) -> list[int]:
    """The sequence without repeats that the budget does not need, the dearest first."""
    seen: set[int] = set()
    repeated = [p for p, node in enumerate(sequence) if node in seen or seen.add(node)]
    for position in sorted(repeated, key=lambda p: (-costs[sequence[p]], -p)):
        marked = [node for p, node in enumerate(sequence) if p != position]
        if peak_bytes(graph, marked) <= budget_bytes:
            return _without_needless(graph, marked, costs, budget_bytes)
    return sequence
