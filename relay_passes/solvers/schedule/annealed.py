"""Orders of a lower peak than the search through prefixes finds, where it did not prove its own the least.

Annealing over orders is asked for less and less. What it finds stands in no order but for the peak: nodes are put
behind what they read then, as far as the peak allows, so that rows may run in series.
"""

from __future__ import annotations

from dataclasses import replace

from relay_passes.solvers.graph import Graph
from relay_passes.solvers.liveness import peak_bytes
from relay_passes.solvers.recompute.reordering import anneal_order, tidied
from relay_passes.solvers.schedule.search import Schedule, schedule

STEPS = (8, 32, 128)
"""Parts of the peak by which it is to fall, the largest as long as an order is found."""
MOVES_PER_NODE = 500


def least_schedule(graph: Graph) -> Schedule:
    """`schedule`, or an order of a lower peak."""
    found = schedule(graph)
    return found if found.proved else annealed_schedule(graph, found)


def annealed_schedule(graph: Graph, found: Schedule) -> Schedule:
    """A schedule of a lower peak, or the same."""
    costs, best = [1] * len(graph.nodes), found
    for step in STEPS:
        while not best.proved:
            budget = max(best.peak_bytes - best.peak_bytes // step, best.bound_bytes)
            lower = anneal_order(graph, best.order, costs, budget, moves_per_node=MOVES_PER_NODE, most_repeats=0)
            if lower is None or lower.peak_bytes >= best.peak_bytes:
                break
            best = replace(best, order=lower.sequence, peak_bytes=lower.peak_bytes)
    if best is found:
        return found
    order = tidied(graph, best.order)
    return replace(best, order=order, peak_bytes=peak_bytes(graph, order))
