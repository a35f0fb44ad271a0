"""Recomputation beyond one search: guides, local search and windows keep to the budget and never cost more."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.networks.layered_graph import layered_graph
from benchmarks.remat import Problem, to_problem
from relay_passes.memory import rematerialize
from relay_passes.memory.rematerialize import cheapest
from relay_passes.solvers.graph import peak_bytes
from relay_passes.solvers.recompute import local as recompute_local
from relay_passes.solvers.recompute.facts import NUM_FACTS
from relay_passes.solvers.recompute.local import improve_locally
from relay_passes.solvers.recompute.search import Recomputation, recompute, repeats_cost
from tvm_ext.guide import learned_rank

needs_ortools = pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="ortools is not installed")
SHARES = (0.9, 0.8, 0.7)


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


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 50), st.integers(10, 40), st.sampled_from(SHARES), st.integers(0, 99))
def test_any_guide_leads_to_plans_that_hold(seed: int, count: int, share: float, noise: int) -> None:
    made, order, peak = problem(count, seed)
    random = np.random.default_rng(noise)

    def rank(facts: np.ndarray) -> np.ndarray:
        assert facts.shape[1] == NUM_FACTS and np.isfinite(facts).all()
        return random.normal(size=len(facts))

    found = recompute(made.graph, order, made.durations, int(peak * share), rank=rank)
    if found is not None:
        assert_plan(made, order, int(peak * share), found)


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_with_the_guide_is_never_dearer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only the search decides."""
    monkeypatch.setattr(rematerialize, "find_spec", lambda _: None)
    monkeypatch.setattr(rematerialize, "improve_locally", lambda graph, costs, budget, found, rank: found)
    monkeypatch.setattr(rematerialize, "anneal_repeats", lambda *_: None)
    made, order, peak = problem(50, seed)
    for share in SHARES:
        budget = int(peak * share)
        plain = cheapest(made.graph, order, made.durations, budget)
        guided = cheapest(made.graph, order, made.durations, budget, rank=learned_rank())
        worst = cheapest(made.graph, order, made.durations, budget, rank=lambda facts: facts[:, 0])
        for other in (guided, worst):
            assert plain is None or (other is not None and other.cost <= plain.cost)


@pytest.mark.parametrize("seed", range(4))
def test_local_search_keeps_to_the_budget_repeats_and_improves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute_local, "ROUNDS", 12)
    made, order, peak = problem(60, seed)
    budget = int(peak * 0.8)
    found = recompute(made.graph, order, made.durations, budget)
    if found is None:
        pytest.skip("the search finds nothing to start from")
    better = improve_locally(made.graph, made.durations, budget, found)
    assert better.cost <= found.cost
    assert_plan(made, order, budget, better)
    assert better == improve_locally(made.graph, made.durations, budget, found)


def test_local_search_finds_cheaper_plans() -> None:
    made, order, peak = problem(100, 1)
    budget = int(peak * 0.8)
    found = recompute(made.graph, order, made.durations, budget)
    assert found is not None
    assert improve_locally(made.graph, made.durations, budget, found).cost < found.cost


@needs_ortools
@pytest.mark.parametrize("seed", range(4))
def test_intervals_keep_to_the_budget_and_never_cost_more(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from relay_passes.solvers.recompute import intervals

    monkeypatch.setattr(intervals, "STAGES", 16)
    monkeypatch.setattr(intervals, "MOST_BEFORE", 12)
    made, order, peak = problem(60, seed)
    for share in SHARES:
        budget = int(peak * share)
        found = recompute(made.graph, order, made.durations, budget)
        if found is not None:
            better = intervals.improve_in_intervals(made.graph, order, made.durations, budget, found)
            assert better.cost <= found.cost
            assert_plan(made, order, budget, better)


@needs_ortools
def test_intervals_find_cheaper_plans() -> None:
    from relay_passes.solvers.recompute.intervals import improve_in_intervals

    made, order, peak = problem(100, 0)
    budget = int(peak * 0.8)
    found = recompute(made.graph, order, made.durations, budget)
    assert found is not None
    assert improve_in_intervals(made.graph, order, made.durations, budget, found).cost < found.cost


@needs_ortools
@pytest.mark.parametrize("seed", range(4))
def test_neighbours_keep_to_the_budget_and_never_cost_more(seed: int) -> None:
    from relay_passes.solvers.recompute.neighbours import improve_neighbours

    made, order, peak = problem(50, seed)
    for share in SHARES:
        budget = int(peak * share)
        found = recompute(made.graph, order, made.durations, budget)
        if found is not None:
            better = improve_neighbours(made.graph, made.durations, budget, found)
            assert better.cost <= found.cost
            assert_plan(made, order, budget, better)


@needs_ortools
def test_neighbours_find_cheaper_plans() -> None:
    from relay_passes.solvers.recompute.neighbours import improve_neighbours

    made, order, peak = problem(100, 0)
    budget = int(peak * 0.8)
    found = recompute(made.graph, order, made.durations, budget)
    assert found is not None
    assert improve_neighbours(made.graph, made.durations, budget, found).cost < found.cost


@needs_ortools
@pytest.mark.parametrize("seed", range(6))
def test_repeats_over_events_are_the_least_of_small_graphs(seed: int) -> None:
    """As cheap as the program over retention intervals proves where no node runs more than twice; else cheaper."""
    from relay_passes.solvers.recompute.events import add_repeats
    from relay_passes.solvers.recompute.exact import recompute_exactly

    made, order, peak = problem(24, seed)
    budget = int(peak * 0.85)
    exact = recompute_exactly(made.graph, order, made.durations, budget)
    if exact is None or not exact.proved:
        pytest.skip("nothing to compare with")
    sequence = add_repeats(made.graph, order, made.durations, budget, exact.cost)
    assert sequence is not None and list(dict.fromkeys(sequence)) == list(order)
    assert repeats_cost(sequence, made.durations) <= exact.cost
    assert add_repeats(made.graph, order, made.durations, budget, exact.cost) == sequence
    if peak_bytes(made.graph, sequence) <= budget and max(Counter(sequence).values()) <= 2:
        assert repeats_cost(sequence, made.durations) == exact.cost
