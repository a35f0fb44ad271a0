"""Find the cheapest recomputations within a budget by simulated annealing that also changes the order.

The search (reorder.c) is compiled at its first use. It starts from a sequence. A move places runs elsewhere, adds
repetitions where the bytes exceed the budget, or drops some. Random numbers come from a fixed seed, and the number of
moves from the graph, so the same problem gives the same result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.annealing import COLD, HOT, MOST_NODES, MOST_REPEATS, SEED, THRESHOLDS
from relay_passes.solvers.recompute.recomputation import Recomputation, repeats_cost
from tvm_ext.core.compiled_search import compiled_search, starts

MOVES_PER_NODE, LEAST_MOVES = 2000, 400_000
MOST_WORK = 1_500_000_000
"""Most moves times nodes. It ends the search sooner on large graphs, where a move takes longer."""
_NUMBERS = ("first_read", "read", "first_write", "write", "maker", "input", "output")
_TABLES = "first_read read shared first_write write extra cost size maker input output".split()


class _Problem(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int32),
        ("num_values", ctypes.c_int32),
        ("budget", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in _TABLES),
    )


@cache
def _library() -> ctypes.CDLL | None:
    names = ("reorder.c", "reorder_moves.c", "reorder_plan.c")
    return compiled_search([Path(__file__).with_name(name) for name in names])


def anneal_order(
    graph: Graph,
    start: Sequence[int],
    costs: Sequence[int],
    budget_bytes: int,
    *,
    moves_per_node: int = MOVES_PER_NODE,
    most_repeats: int = MOST_REPEATS,
    seed: int = SEED,
) -> Recomputation | None:
    """Return the cheapest sequence found within the budget, in any valid order.

    The search ends as soon as a sequence repeats nothing.
    start: a sequence, which need not be within the budget.
    most_repeats: 0 to search only an order.
    None if no sequence was found, without a C compiler, and for very large graphs.
    """
    count = len(graph.nodes)
    if count > MOST_NODES or sum(costs) > 2**53:
        return None
    library = _library()
    if library is None:
        return None
    tables = _tables(graph, costs)
    problem = _problem(graph, tables, budget_bytes)
    moves = min(max(moves_per_node * count, LEAST_MOVES), MOST_WORK // count)
    nodes = np.zeros(max(len(start), count + most_repeats), np.int32)
    nodes[: len(start)] = start
    length = library.reorder(
        ctypes.byref(problem), ctypes.c_void_p(nodes.ctypes.data), ctypes.c_int32(len(start)),
        ctypes.c_int32(len(nodes)), ctypes.c_int64(moves),
        ctypes.c_double(HOT), ctypes.c_double(COLD), ctypes.c_uint64(seed), ctypes.c_void_p(THRESHOLDS.ctypes.data),
    )  # fmt: skip
    if length < 0:
        return None
    sequence = tuple(nodes[:length].tolist())
    return Recomputation(sequence=sequence, peak_bytes=peak_bytes(graph, sequence), cost=repeats_cost(sequence, costs))


def tidied(graph: Graph, order: Sequence[int], moves_per_node: int = MOVES_PER_NODE) -> tuple[int, ...]:
    """Return an order with no higher peak, in which more nodes directly follow the nodes that they read."""
    library, count = _library(), len(order)
    if library is None:
        return tuple(order)
    tables = _tables(graph, [0] * count)
    problem = _problem(graph, tables, peak_bytes(graph, order))
    nodes = np.array(order, np.int32)
    library.tidy(
        ctypes.byref(problem), ctypes.c_void_p(nodes.ctypes.data), ctypes.c_int32(count),
        ctypes.c_int64(min(moves_per_node * count, MOST_WORK // count)), ctypes.c_uint64(SEED),
    )  # fmt: skip
    return tuple(nodes.tolist())


def _problem(graph: Graph, tables: dict[str, NDArray[np.int32] | NDArray[np.int64]], budget_bytes: int) -> _Problem:
    pointers = {name: tables[name].ctypes.data for name in _TABLES}
    return _Problem(count=len(graph.nodes), num_values=len(graph.sizes), budget=budget_bytes, **pointers)


def _tables(graph: Graph, costs: Sequence[int]) -> dict[str, NDArray[np.int32] | NDArray[np.int64]]:
    """Return the problem with the names of reorder.h."""
    reads = [list(dict.fromkeys(node.reads)) for node in graph.nodes]
    makers = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
    values = range(len(graph.sizes))
    rows = {
        "first_read": starts(reads), "read": [value for row in reads for value in row],
        "shared": [n.shared_bytes.get(v, 0) for n, row in zip(graph.nodes, reads, strict=True) for v in row],
        "first_write": starts([node.writes for node in graph.nodes]),
        "write": [value for node in graph.nodes for value in node.writes],
        "extra": [node.extra_bytes for node in graph.nodes], "cost": list(costs), "size": list(graph.sizes),
        "maker": [makers.get(value, -1) for value in values],
        "input": [int(value in graph.inputs) for value in values],
        "output": [int(value in graph.outputs) for value in values],
    }  # fmt: skip
    return {name: np.array(row, np.int32 if name in _NUMBERS else np.int64) for name, row in rows.items()}
