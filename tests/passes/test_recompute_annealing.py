"""Repeats by annealing: they keep to the budget whatever nodes share and need, and come to what a proof says."""

from __future__ import annotations

import importlib.util
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_passes.solvers.graph import Graph, Node, peak_bytes
from relay_passes.solvers.recompute import annealing
from relay_passes.solvers.recompute.annealing import anneal_repeats
from relay_passes.solvers.recompute.search import recompute
from tests.support.recompute_problems import SHARES, assert_plan, problem

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
@pytest.mark.slow
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


@needs_ortools
def test_small_graphs_come_to_the_proved_cost() -> None:
    from relay_passes.solvers.recompute.bound import bound_at_places

    proved = 0
    for seed in range(8):
        made, order, peak = problem(22, seed)
        budget = int(peak * 0.85)
        bounded = bound_at_places(made.graph, order, made.durations, budget)
        if bounded.plan is not None and bounded.plan.cost == bounded.at_least:
            found = anneal_repeats(made.graph, order, made.durations, budget)
            assert found is not None and found.cost == bounded.at_least
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


def test_other_random_numbers_give_plans_that_hold_too() -> None:
    made, order, peak = problem(60, 0)
    found = [anneal_repeats(made.graph, order, made.durations, int(peak * 0.8), seed=seed) for seed in (1, 2, 3)]
    for one in found:
        assert one is not None
        assert_plan(made, order, int(peak * 0.8), one)
    costs = [one.cost for one in found if one is not None]
    assert max(costs) <= 1.1 * min(costs)


def test_without_a_compiler_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    annealing._library.cache_clear()
    made, order, peak = problem(60, 1)
    try:
        assert anneal_repeats(made.graph, order, made.durations, int(peak * 0.8)) is None
        assert recompute(made.graph, order, made.durations, int(peak * 0.8), bound_effort=0, keeps_order=True) is None
    finally:
        annealing._library.cache_clear()
