"""Lower bound of the cost of recomputation within a budget, with an order of first runs kept, for `remat.py`.

A value that is not there while some node runs for the first time, though a later one reads it, runs again in between.
So each gap between two reads of a value is bridged by its bytes or by at least one repeat, of which there is one for
each gap that is not. The cheapest choice of gaps that leaves no node above the budget is a bound: what repeats read has
to be there as well, which it does not ask.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from ortools.sat.python import cp_model

from relay_passes.solvers.graph import Graph
from relay_passes.solvers.liveness import live_bytes

EFFORT = 5.0
"""Limit of the solver in its own measure, about seconds: it ends the search without depending on the machine."""


def least_cost(graph: Graph, costs: Sequence[int], budget_bytes: int) -> int:
    """A cost of repeats that no sequence within the budget goes below; nodes run in their numbers' order.

    graph: each node writes the value of its own number, and shares no bytes with what it reads.
    """
    live = live_bytes(graph, range(len(graph.nodes)))
    above = [place for place, bytes_ in enumerate(live) if bytes_ > budget_bytes]
    visits: list[list[int]] = [[node] for node in range(len(graph.nodes))]
    for place, node in enumerate(graph.nodes):
        for value in dict.fromkeys(node.reads):
            visits[value].append(place)
    model = cp_model.CpModel()
    freed: dict[int, list[cp_model.LinearExprT]] = defaultdict(list)
    spent: list[cp_model.LinearExprT] = []
    for value, places in enumerate(visits):
        for begin, end in pairwise(places):
            between = [place for place in above if begin < place < end]
            if between:
                gone = model.new_bool_var("")
                spent.append(costs[value] * gone)
                for place in between:
                    freed[place].append(graph.sizes[value] * gone)
    for place in above:
        model.add(sum(freed[place]) >= live[place] - budget_bytes)
    model.minimize(sum(spent))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    solver.solve(model)
    return max(0, round(solver.best_objective_bound))
