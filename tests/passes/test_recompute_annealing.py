"""Repeats by annealing: they keep to the budget whatever nodes share and need, and come to what a proof says."""

from __future__ import annotations

import importlib.util
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_passes.memory import rematerialize
from relay_passes.memory.rematerialize import cheapest
from relay_passes.solvers.graph import Graph, Node, peak_bytes
from relay_passes.solvers.recompute import annealing
from relay_passes.solvers.recompute.annealing import anneal_repeats
from relay_passes.solvers.recompute.search import recompute
from tests.passes.test_recompute_local import SHARES, assert_plan, problem

needs_ortools = pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="ortools is not installed")


def shared_graph(seed: int, count: int = 14, unit: int = 1) -> tuple[Graph, list[int]]:
    """A graph with an input, nodes of one or two results, scratch, and results that lie on what dies; its costs."""
    rng = random.Random(seed)
    nodes, sizes = [], [8 * unit]
    for _ in range(count):
        reads = tuple(rng.choices(range(max(0, len(sizes) - 7), len(sizes)), k=rng.choice((1, 2))))
        writes = tuple(range(len(sizes), len(sizes) + rng.choice((1, 1, 2))))
        sizes += [unit * rng.randint(1, 16) for _ in writes]
        shared = {reads[0]: min(sizes[reads[0]], sizes[writes[0]])} if rng.random() < 0.5 else {}
        nodes.append(Node(reads=reads, writes=writes, extra_bytes=unit * rng.choice((0, 3)), shared_bytes=shared))
    outputs = frozenset({len(sizes) - 1, rng.randrange(1, len(sizes))})
    graph = Graph(nodes=tuple(nodes), sizes=tuple(sizes), inputs=frozenset({0}), outputs=outputs)
    return graph, [rng.randint(1, 9) for _ in nodes]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.sampled_from((1, 10**6)))
def test_plans_keep_to_the_budget_whatever_nodes_share(seed: int, unit: int) -> None:
    """Also where bytes are counted in larger units."""
    graph, costs = shared_graph(seed, unit=unit)
    order = range(len(graph.nodes))
    for share in SHARES:
        budget = int(peak_bytes(graph, order) * share)
        found = anneal_repeats(graph, order, costs, budget)
        if found is not None:
            assert found.peak_bytes == peak_bytes(graph, found.sequence) <= budget
            assert found.cost == sum(costs[node] for node in found.sequence) - sum(costs)
            assert list(dict.fromkeys(found.sequence)) == list(order)
            assert found == anneal_repeats(graph, order, costs, budget)


def test_what_nodes_share_is_counted_as_it_is() -> None:
    """Budgets that the search for one repeat after the other meets are met, for as little or less in all."""
    solved = spent = 0
    for seed in range(60):
        graph, costs = shared_graph(seed)
        order = range(len(graph.nodes))
        budget = int(peak_bytes(graph, order) * 0.9)
        known = recompute(graph, order, costs, budget)
        found = anneal_repeats(graph, order, costs, budget)
        if known is not None:
            assert found is not None, seed
            spent += found.cost - known.cost
            solved += 1
    assert solved >= 10 and spent <= 0


@needs_ortools
def test_small_graphs_come_to_the_proved_cost() -> None:
    from relay_passes.solvers.recompute.exact import recompute_exactly

    proved = 0
    for seed in range(6):
        made, order, peak = problem(22, seed)
        budget = int(peak * 0.85)
        exact = recompute_exactly(made.graph, order, made.durations, budget)
        if exact is not None and exact.proved:
            found = anneal_repeats(made.graph, order, made.durations, budget)
            assert found is not None and found.cost <= exact.cost
            assert_plan(made, order, budget, found)
            proved += 1
    assert proved >= 3


def test_an_order_that_is_not_that_of_the_numbers_is_kept() -> None:
    made, _, _ = problem(40, 3)
    graph, count = made.graph, len(made.graph.nodes)
    back = [count - 1 - node for node in range(count)]
    turned = Graph(nodes=tuple(reversed(graph.nodes)), sizes=graph.sizes, inputs=graph.inputs, outputs=graph.outputs)
    budget = int(peak_bytes(graph, range(count)) * 0.8)
    one = anneal_repeats(graph, range(count), made.durations, budget)
    other = anneal_repeats(turned, back, made.durations[::-1], budget)
    assert one is not None and other is not None
    assert other.sequence == tuple(back[node] for node in one.sequence)


def test_a_node_larger_than_the_budget_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annealing, "_library", lambda: pytest.fail("searched"))
    graph, costs = shared_graph(0)
    assert anneal_repeats(graph, range(len(graph.nodes)), costs, 1) is None


def test_large_graphs_take_less_than_the_search_for_one_repeat_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annealing, "MOVES_PER_NODE", 1000)
    made, order, peak = problem(180, 0)
    found = anneal_repeats(made.graph, order, made.durations, int(peak * 0.8))
    known = recompute(made.graph, order, made.durations, int(peak * 0.8))
    assert found is not None and known is not None and found.cost < known.cost
    assert_plan(made, order, int(peak * 0.8), found)


def test_without_a_compiler_other_searches_remain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(rematerialize, "find_spec", lambda _: None)
    annealing._library.cache_clear()
    made, order, peak = problem(60, 1)
    try:
        assert anneal_repeats(made.graph, order, made.durations, int(peak * 0.8)) is None
        found = cheapest(made.graph, order, made.durations, int(peak * 0.8))
    finally:
        annealing._library.cache_clear()
    assert found is not None
    assert_plan(made, order, int(peak * 0.8), found)


def test_what_is_near_a_repeat_behind_all_nodes_is_looked_for_without_it() -> None:
    """The search knows repeats before first runs alone."""
    nodes = tuple(Node(reads=(read,), writes=(written,), shared_bytes={}) for read, written in ((0, 1), (0, 2), (2, 3)))
    graph = Graph(nodes=nodes, sizes=(1, 10, 12, 1), inputs=frozenset({0}), outputs=frozenset({1, 3}))
    assert peak_bytes(graph, (0, 1, 2, 0)) == 14
    assert anneal_repeats(graph, range(3), [2, 1, 1], 14, (0, 1, 2, 0)) is None
