"""Find the cheapest recomputations within a budget by simulated annealing, keeping the order of first runs.

The search (anneal.c) is compiled at its first use. A move adds repetitions where the bytes exceed the budget, drops
some, or moves one. Bytes above the budget are allowed meanwhile, at a price. A move takes only microseconds, because
only the spans of the values that it touches are counted again. Random numbers come from a fixed seed, and the number of
moves from the graph, so the same problem gives the same result.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.recomputation import Recomputation, repeats_cost
from tvm_ext.core.compiled_search import compiled_search, starts

MOVES_PER_NODE = 8000
MOST_WORK = 3_500_000_000
"""Most moves times nodes. It ends the search sooner on large graphs, where a move takes longer."""
HOT, COLD = 0.3, 0.02
"""First and last temperature, relative to the mean cost of a node."""
SEED = 1
MOST_NODES = 4000
MOST_REPEATS = 2000
_LARGEST = 2**30
"""Largest sum of bytes of all values over all nodes. Larger problems use larger units, so that sums fit in 32 bits."""
THRESHOLDS = np.array([round(-1024 * math.log((i + 0.5) / 256)) for i in range(256)], np.int32)
"""Quantiles of the exponential distribution, times 1024.

A move that costs d more than before is kept with probability exp(-d).
"""
_TABLES = (
    "first_read read shared first_write write extra cost size maker output first_waiting waiting".split()
)  # fmt: skip


class _Problem(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int32),
        ("num_values", ctypes.c_int32),
        ("budget", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in _TABLES),
    )


@cache
def _library() -> ctypes.CDLL | None:
    names = ("anneal.c", "anneal_moves.c", "anneal_plan.c")
    return compiled_search([Path(__file__).with_name(name) for name in names])


def anneal_repeats(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int, *, seed: int = SEED
) -> Recomputation | None:
    """Return the cheapest sequence found within the budget that keeps the order of first runs.

    None if none was found, without a C compiler, and for very large graphs.
    """
    count = len(order)
    if count > MOST_NODES or sum(costs) > 2**53 or _least_bytes(graph) > budget_bytes:
        return None
    library = _library()
    if library is None:
        return None
    unit = -(-(sum(graph.sizes) + sum(node.extra_bytes for node in graph.nodes)) * count // _LARGEST) or 1
    tables = _tables(graph, order, costs, unit)
    pointers = {name: table.ctypes.data for name, table in tables.items()}
    problem = _Problem(count=count, num_values=len(graph.sizes), budget=min(budget_bytes // unit, _LARGEST), **pointers)
    slots = np.zeros(MOST_REPEATS, np.int32)
    num_repeats = library.anneal(
        ctypes.byref(problem), ctypes.c_int64(min(MOVES_PER_NODE * count, MOST_WORK // count)), ctypes.c_double(HOT),
        ctypes.c_double(COLD), ctypes.c_uint64(seed), ctypes.c_void_p(THRESHOLDS.ctypes.data),
        ctypes.c_void_p(slots.ctypes.data), ctypes.c_int32(0),
    )  # fmt: skip
    if num_repeats < 0:
        return None
    sequence = _sequence(order, slots[:num_repeats].tolist())
    return Recomputation(sequence=sequence, peak_bytes=peak_bytes(graph, sequence), cost=repeats_cost(sequence, costs))


def _sequence(order: Sequence[int], slots: Sequence[int]) -> tuple[int, ...]:
    """Return the order with repetitions at slots."""
    again: list[list[int]] = [[] for _ in order]
    for slot in slots:
        again[slot // len(order)].append(order[slot % len(order)])
    return tuple(node for stage, first in enumerate(order) for node in (*again[stage], first))


def _least_bytes(graph: Graph) -> int:
    """Return the bytes that are alive at some node in any sequence."""
    return max(
        sum(graph.sizes[value] for value in {*node.reads, *node.writes})
        + node.extra_bytes - max(node.shared_bytes.values(), default=0)
        for node in graph.nodes
    )  # fmt: skip


def _tables(
    graph: Graph, order: Sequence[int], costs: Sequence[int], unit: int
) -> dict[str, NDArray[np.int32] | NDArray[np.int64]]:
    """Return the problem with the names of anneal.h.

    Bytes are in units, rounded so that a plan that fits in units also fits in bytes.
    """
    nodes = [graph.nodes[index] for index in order]
    reads = [list(dict.fromkeys(node.reads)) for node in nodes]
    makers = {value: place for place, node in enumerate(nodes) for value in node.writes}
    lasts = {value: place for place, values in enumerate(reads) for value in values}
    lasts |= dict.fromkeys(graph.outputs, len(nodes))
    waiting: list[list[int]] = [[] for _ in nodes]
    for value, made in makers.items():
        for place in range(made + 1, lasts.get(value, made)):
            waiting[place].append(value)
    shared = [
        node.shared_bytes.get(value, 0) // unit for node, values in zip(nodes, reads, strict=True) for value in values
    ]
    values = range(len(graph.sizes))
    rows = {
        "first_read": starts(reads), "read": [value for row in reads for value in row], "shared": shared,
        "first_write": starts([node.writes for node in nodes]), "write": [v for node in nodes for v in node.writes],
        "extra": [-(-node.extra_bytes // unit) for node in nodes],
        "size": [-(-size // unit) for size in graph.sizes], "maker": [makers.get(value, -1) for value in values],
        "output": [int(value in graph.outputs) for value in values],
        "first_waiting": starts(waiting), "waiting": [value for row in waiting for value in row],
    }  # fmt: skip
    tables = {name: np.array(row, np.int32) for name, row in rows.items()}
    return {**tables, "cost": np.array([costs[index] for index in order], np.int64)}
