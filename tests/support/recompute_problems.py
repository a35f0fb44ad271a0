"""Layered graphs as recomputation problems, and the check that a plan holds."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.networks.layered_graph import layered_graph
from benchmarks.remat import Problem, to_problem
from relay_passes.solvers.graph import peak_bytes
from relay_passes.solvers.recompute.recomputation import Recomputation, repeats_cost

SHARES = (0.9, 0.8, 0.7)
"""Budgets as parts of the peak of an order."""


def problem(count: int, seed: int) -> tuple[Problem, range, int]:
    """A random layered graph, its order, and the peak of that."""
    made = to_problem(layered_graph(count, seed), "graph")
    return made, range(count), peak_bytes(made.graph, range(count))


def assert_plan(made: Problem, order: Sequence[int], budget: int, found: Recomputation) -> None:
    """Peak and cost are as the plan says, and it keeps the order of first runs and the budget."""
    assert found.peak_bytes == peak_bytes(made.graph, found.sequence) <= budget
    assert found.cost == repeats_cost(found.sequence, made.durations)
    assert list(dict.fromkeys(found.sequence)) == list(order)
    there: set[int] = set()
    for node in found.sequence:
        assert set(made.graph.nodes[node].reads) <= there
        there.add(node)
