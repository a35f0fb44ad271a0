"""Orders by annealing: those of a lower peak than the search's, where that proved nothing, with runs left in a row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute import reordering
from relay_passes.solvers.recompute.reordering import anneal_order, tidied
from relay_passes.solvers.schedule import search as schedule_search
from relay_passes.solvers.schedule.search import annealed_schedule, least_schedule, schedule
from tests.passes.test_recompute_annealing import shared_graph
from tests.support.recompute_problems import problem


def assert_order(graph: Graph, order: Sequence[int]) -> None:
    assert sorted(order) == list(range(len(graph.nodes)))
    there = set(graph.inputs)
    for node in order:
        assert set(graph.nodes[node].reads) <= there
        there |= set(graph.nodes[node].writes)


def in_a_row(graph: Graph, order: Sequence[int]) -> int:
    """Reads of what the node right before makes."""
    pairs = pairwise(order)
    return sum(len(set(graph.nodes[one].writes) & set(graph.nodes[other].reads)) for one, other in pairs)


@pytest.mark.slow
def test_a_search_that_proved_nothing_is_bettered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to what the whole search proves."""
    least = [schedule(shared_graph(seed, count=40)[0]) for seed in range(12)]
    monkeypatch.setattr(schedule_search, "BEAM", 1)
    monkeypatch.setattr(schedule_search, "MOST_STEPS", 0)
    bettered = 0
    for seed, proved in enumerate(least):
        graph, _ = shared_graph(seed, count=40)
        found = schedule(graph)
        annealed = annealed_schedule(graph, found)
        assert_order(graph, annealed.order)
        assert annealed == annealed_schedule(graph, found)
        assert annealed.peak_bytes == peak_bytes(graph, annealed.order) <= found.peak_bytes
        assert annealed.bound_bytes == found.bound_bytes
        assert annealed.peak_bytes == proved.peak_bytes or not proved.proved, seed
        bettered += annealed.peak_bytes < found.peak_bytes
    assert bettered >= 4


def test_a_proved_order_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reordering, "_library", lambda: pytest.fail("searched"))
    graph, _ = shared_graph(2)
    found = schedule(graph)
    assert found.proved and least_schedule(graph) == found


def test_without_a_compiler_the_search_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reordering, "_library", lambda: None)
    monkeypatch.setattr(schedule_search, "MOST_STEPS", 0)
    graph, _ = shared_graph(1, count=40)
    found = schedule(graph)
    assert not found.proved and least_schedule(graph) == found


def test_nodes_go_behind_what_they_read_as_far_as_the_peak_allows() -> None:
    more = 0
    for seed in range(4):
        made, order, _ = problem(80, seed)
        budget = schedule(made.graph).peak_bytes
        found = anneal_order(made.graph, order, made.durations, budget, most_repeats=0)
        assert found is not None
        tidy = tidied(made.graph, found.sequence)
        assert_order(made.graph, tidy)
        assert peak_bytes(made.graph, tidy) <= found.peak_bytes
        more += in_a_row(made.graph, tidy) - in_a_row(made.graph, found.sequence)
        assert in_a_row(made.graph, tidy) >= in_a_row(made.graph, found.sequence)
    assert more >= 20
