"""Recomputation on plain graphs: peaks counted by hand, costs compared with trying every sequence."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import combinations, product

import pytest

from relay_passes.solvers.graph import Graph, Node, live_bytes, peak_bytes
from relay_passes.solvers.recompute.recomputation import repeats_cost
from relay_passes.solvers.recompute.search import recompute


def node(reads: tuple[int, ...], write: int, **more: object) -> Node:
    return Node(reads=reads, writes=(write,), shared_bytes={}, **more)  # type: ignore[arg-type]


def skip(length: int) -> Graph:
    """A small value, wide ones in between, and a last node that reads the small one's large copy again."""
    nodes = [node((0,), 1), *(node((i,), i + 1) for i in range(1, length)), node((length, 1), length + 1)]
    sizes = (1, 50, *[60] * (length - 1), 1)
    return Graph(nodes=tuple(nodes), sizes=sizes, inputs=frozenset({0}), outputs=frozenset({length + 1}))


def test_live_bytes_of_an_order_and_of_a_repeat() -> None:
    graph = skip(3)
    assert live_bytes(graph, [0, 1, 2, 3]) == [51, 110, 170, 111]
    # Once more before its last reader: the input stays until then, the value does not.
    assert live_bytes(graph, [0, 1, 2, 0, 3]) == [51, 111, 121, 111, 111]


def test_scratch_and_shared_bytes_count() -> None:
    nodes = (node((0,), 1, extra_bytes=7), Node(reads=(1,), writes=(2,), shared_bytes={1: 10}))
    graph = Graph(nodes=nodes, sizes=(5, 10, 10), inputs=frozenset({0}), outputs=frozenset({2}))
    assert live_bytes(graph, [0, 1]) == [22, 10]


def test_a_value_that_waits_is_computed_again() -> None:
    found = recompute(skip(3), range(4), [10, 99, 99, 99], 125)
    assert found is not None
    assert (found.sequence, found.peak_bytes, found.cost) == ((0, 1, 2, 0, 3), 121, 10)


def test_nothing_is_repeated_without_need_and_nothing_found_where_nothing_helps() -> None:
    found = recompute(skip(3), range(4), [10] * 4, 170)
    assert found is not None and found.sequence == (0, 1, 2, 3)
    assert recompute(skip(3), range(4), [10] * 4, 119) is None


def random_graph(seed: int, count: int) -> tuple[Graph, list[int]]:
    rng = random.Random(seed)
    reads = [tuple(sorted(rng.sample(range(i), min(i, rng.randint(1, 2))))) for i in range(count)]
    nodes = tuple(node(r, i) for i, r in enumerate(reads))
    sizes = tuple(rng.randint(1, 20) for _ in range(count))
    graph = Graph(nodes=nodes, sizes=sizes, inputs=frozenset(), outputs=frozenset({count - 1}))
    return graph, [rng.randint(1, 9) for _ in range(count)]


def every_sequence(count: int) -> list[list[int]]:
    """Each node at its place, and each at most once more in the stage of a later one."""
    found = []
    for repeated in (c for size in range(count) for c in combinations(range(count - 1), size)):
        for stages in product(*(range(v + 1, count) for v in repeated)):
            again = dict(zip(repeated, stages, strict=True))
            found.append([n for stage in range(count) for n in (*(v for v, s in again.items() if s == stage), stage)])
    return found


def needs_and_costs(
    graph: Graph, costs: list[int], sequences: Iterable[Sequence[int]] | None = None
) -> list[tuple[int, int]]:
    """Return the peak bytes and the cost of each sequence; by default, of all sequences that the searches consider."""
    known = every_sequence(len(graph.nodes)) if sequences is None else sequences
    return [(peak_bytes(graph, sequence), repeats_cost(sequence, costs)) for sequence in known]


def least_cost(known: Iterable[tuple[int, int]], budget: int) -> int | None:
    """Return the least cost of a sequence that stays within the budget, or None. known: pairs of needs_and_costs."""
    return min((cost for need, cost in known if need <= budget), default=None)


@pytest.mark.parametrize("seed", range(12))
def test_the_search_stays_within_the_budget(seed: int) -> None:
    graph, costs = random_graph(seed, 6)
    known = needs_and_costs(graph, costs)
    for budget in range(peak_bytes(graph, range(6)), 0, -3):
        found, least = recompute(graph, range(6), costs, budget, keeps_order=True), least_cost(known, budget)
        if found is not None:
            assert found.peak_bytes == peak_bytes(graph, found.sequence) <= budget
            assert found.cost == repeats_cost(found.sequence, costs)
            assert [n for i, n in enumerate(found.sequence) if n not in found.sequence[:i]] == list(range(6))
        if least == 0:
            assert found is not None and found.cost == 0
