"""Find the cheapest recomputation that keeps a graph within a budget of live bytes.

Simulated annealing first searches repetitions in the given order, and then changes the order and the repetitions
together. Both searches are written in C (`anneal.c`, `reorder.c`). A bound by constraint programming tells how close
the first search came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.annealing import SEED, anneal_repeats
from relay_passes.solvers.recompute.recomputation import Recomputation
from relay_passes.solvers.recompute.reordering import anneal_order

MOST_BOUNDED = 2000
"""Most nodes for which the cost is bounded, where ortools is installed. Larger graphs take the solver minutes."""
BOUND_EFFORT = 2.0
"""Effort of the solver for the bound, in about seconds. With 10, bounds of layered graphs rise by up to 6 %."""


def recompute(
    graph: Graph,
    order: Sequence[int],
    costs: Sequence[int],
    budget_bytes: int,
    *,
    keeps_order: bool = False,
    bound_effort: float = BOUND_EFFORT,
    seed: int = SEED,
) -> Recomputation | None:
    """Return the cheapest sequence found within the budget, with its bound, or None where no sequence is found.

    costs: of each node, when it runs again.
    keeps_order: whether first runs stay in the given order.
    bound_effort: 0 for no bound.
    The same arguments give the same result. Without a C compiler on this machine no sequence is found.
    """
    peak = peak_bytes(graph, order)
    if peak <= budget_bytes:
        return Recomputation(sequence=tuple(order), peak_bytes=peak, cost=0)
    found = anneal_repeats(graph, order, costs, budget_bytes, seed=seed)
    if bound_effort and len(order) <= MOST_BOUNDED and find_spec("ortools") is not None:
        found = _bounded(graph, order, costs, budget_bytes, found, bound_effort)
    if keeps_order or (found is not None and not found.cost):
        return found
    free = anneal_order(graph, found.sequence if found else order, costs, budget_bytes, seed=seed)
    return free if free is not None and (found is None or free.cost < found.cost) else found


def _bounded(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int, found: Recomputation | None,
    effort: float,
) -> Recomputation | None:  # fmt: skip
    """Return the found sequence with its bound, or the cheaper plan that the solver of the bound found."""
    from relay_passes.solvers.recompute.bound import bound_at_places

    bounded = bound_at_places(graph, order, costs, budget_bytes, found, effort)
    return bounded.plan and replace(bounded.plan, at_least=bounded.at_least or 0)
