"""Least cost of recomputation by bytes at places: never above a plan's, and that of the cheapest plan in the end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest

pytest.importorskip("ortools", reason="ortools is not installed")


from relay_passes.solvers.graph import Graph, Node, peak_bytes
from relay_passes.solvers.recompute.annealing import anneal_repeats
from relay_passes.solvers.recompute.bound import KeptAtPlaces, NoneKept, PlaceProblem, bound_at_places, keep_at
from relay_passes.solvers.recompute.recomputation import Recomputation, repeats_cost
from relay_passes.solvers.recompute.search import recompute
from tests.passes.test_recompute_annealing import shared_graph
from tests.passes.test_recompute_search import every_sequence, least_cost, needs_and_costs, random_graph
from tests.support.recompute_problems import problem


def fixed(graph: Graph, order: range, costs: Sequence[int], budget_bytes: int) -> Recomputation | None:
    """What the search finds in that order."""
    return recompute(graph, order, costs, budget_bytes, keeps_order=True)


@pytest.mark.slow
def test_the_bound_is_never_above_the_least_cost_of_all_sequences() -> None:
    """And mostly reaches it, by a plan that stays within the budget."""
    met = proved = 0
    for seed in range(12):
        graph, costs = random_graph(seed, 6)
        known = needs_and_costs(graph, costs)
        for budget in range(peak_bytes(graph, range(6)), 0, -5):
            bounded, least = bound_at_places(graph, range(6), costs, budget), least_cost(known, budget)
            if least is not None:
                assert bounded.at_least is not None and bounded.at_least <= least
                met += 1
                proved += bounded.plan is not None and bounded.plan.cost == bounded.at_least
            if bounded.plan is not None:
                assert bounded.plan.peak_bytes == peak_bytes(graph, bounded.plan.sequence) <= budget
                assert bounded.plan.cost == repeats_cost(bounded.plan.sequence, costs)
                assert list(dict.fromkeys(bounded.plan.sequence)) == list(range(6))
    assert met > 15 and proved >= 0.8 * met


@pytest.mark.slow
def test_the_bound_holds_for_what_nodes_share_need_and_leave() -> None:
    """Graphs with an input, several results, scratch, and results that lie on what dies, beside other searches."""
    compared = 0
    for seed in range(40):
        graph, costs = shared_graph(seed)
        order = range(len(graph.nodes))
        for share in (0.9, 0.8, 0.7):
            budget = int(peak_bytes(graph, order) * share)
            bounded = bound_at_places(graph, order, costs, budget)
            plan = anneal_repeats(graph, order, costs, budget)
            if plan is not None:
                assert bounded.at_least is not None and bounded.at_least <= plan.cost
                compared += 1
    assert compared > 15, compared


def test_results_that_run_again_behind_the_last_node_count_there() -> None:
    """A result given up for the wide value behind it runs again at the end, where its scratch does not fit any more."""
    nodes = (
        Node(reads=(0,), writes=(1,), shared_bytes={}, extra_bytes=5),
        Node(reads=(0,), writes=(2,), shared_bytes={}),
        Node(reads=(2,), writes=(3,), shared_bytes={}),
    )
    graph = Graph(nodes=nodes, sizes=(1, 10, 12, 1), inputs=frozenset({0}), outputs=frozenset({1, 3}))
    met = bound_at_places(graph, range(3), [2, 1, 1], 17)
    assert met.plan is not None and met.plan.sequence == (0, 1, 2, 0) and met.at_least == 2
    assert bound_at_places(graph, range(3), [2, 1, 1], 16).plan is None
    assert least_cost(needs_behind(graph, [2, 1, 1]), 16) is None


def needs_behind(graph: Graph, costs: list[int]) -> list[tuple[int, int]]:
    """Return `needs_and_costs` of sequences in which nodes may also run again after the last one."""
    count = len(graph.nodes)
    last = [tuple(again) for size in range(count) for again in combinations(range(count - 1), size)]
    return needs_and_costs(graph, costs, ((*sequence, *again) for sequence in every_sequence(count) for again in last))


@pytest.mark.slow
def test_the_bound_holds_for_results_that_are_early() -> None:
    """Each budget of small graphs, whose results may run again behind all others."""
    met = proved = 0
    for seed in range(8):
        graph, costs = random_graph(seed, 5)
        rng = random.Random(seed)
        graph = replace(graph, outputs=graph.outputs | {value for value in range(5) if rng.random() < 0.4})
        nodes = tuple(replace(node, extra_bytes=rng.choice((0, 0, 3, 9))) for node in graph.nodes)
        graph = replace(graph, nodes=nodes)
        known = needs_behind(graph, costs)
        for budget in range(peak_bytes(graph, range(5)), 0, -4):
            bounded, least = bound_at_places(graph, range(5), costs, budget), least_cost(known, budget)
            if least is not None:
                assert bounded.at_least is not None and bounded.at_least <= least, (seed, budget)
                met += 1
                proved += bounded.plan is not None and bounded.plan.cost == bounded.at_least
            if bounded.plan is not None:
                assert bounded.plan.peak_bytes == peak_bytes(graph, bounded.plan.sequence) <= budget
    assert met > 5 and proved >= 0.8 * met, (met, proved)


@pytest.mark.parametrize("seed", range(4))
def test_a_known_plan_is_kept_or_undercut(seed: int) -> None:
    made, order, peak = problem(40, seed)
    budget = int(peak * 0.8)
    known = anneal_repeats(made.graph, order, made.durations, budget)
    if known is None:
        pytest.skip("nothing to begin with")
    bounded = bound_at_places(made.graph, order, made.durations, budget, known)
    assert bounded.plan is not None and bounded.at_least is not None
    assert bounded.at_least <= bounded.plan.cost <= known.cost
    assert bounded == bound_at_places(made.graph, order, made.durations, budget, known)


def test_orders_other_than_the_nodes_own_are_kept() -> None:
    graph, costs = random_graph(3, 6)
    order = [0, *(node for node in range(1, 6))]
    reads = [set(node.reads) for node in graph.nodes]
    for place in range(1, 5):  # The first neighbours that may change places.
        if order[place] not in reads[order[place + 1]]:
            order[place], order[place + 1] = order[place + 1], order[place]
            break
    assert order != list(range(6))
    bounded = bound_at_places(graph, order, costs, peak_bytes(graph, order) - 1)
    if bounded.plan is not None:
        assert list(dict.fromkeys(bounded.plan.sequence)) == order


def chain() -> tuple[Graph, list[int]]:
    """A wide value that the last node reads again; three nodes with wide results in between."""
    nodes = [Node(reads=reads, writes=(value,), shared_bytes={})
             for reads, value in (((0,), 1), ((1,), 2), ((2,), 3), ((3, 1), 4))]  # fmt: skip
    graph = Graph(nodes=tuple(nodes), sizes=(1, 8, 8, 8, 1), inputs=frozenset({0}), outputs=frozenset({4}))
    return graph, [5, 3, 3, 3]


def test_one_repeat_is_found_and_proved() -> None:
    """The input is kept for it: 1 + 8 + 8 bytes at the third node instead of 8 + 8 + 8."""
    graph, costs = chain()
    bounded = bound_at_places(graph, range(4), costs, 17)
    assert bounded.plan is not None and bounded.plan.sequence == (0, 1, 2, 0, 3)
    assert bounded.plan.cost == bounded.at_least == 5


def test_a_budget_that_nothing_keeps_to_is_told_from_one_that_was_not_met() -> None:
    graph, costs = chain()
    assert bound_at_places(graph, range(4), costs, 15).at_least is None
    assert fixed(graph, range(4), costs, 15) is None
    made, order, peak = problem(60, 0)
    unmet = bound_at_places(made.graph, order, made.durations, int(peak * 0.8), effort=1e-9)
    assert unmet.at_least == 0 and unmet.plan is None


def test_bytes_count_at_places_and_at_repeats_only_where_asked() -> None:
    """A repeat between two places takes its own bytes beside what stays: counted, the program finds another plan."""
    nodes = [Node(reads=reads, writes=(value,), shared_bytes={})
             for reads, value in (((), 0), ((0,), 1), ((), 2), ((2,), 3), ((1, 3), 4))]  # fmt: skip
    graph = Graph(nodes=tuple(nodes), sizes=(9, 2, 6, 3, 1), inputs=frozenset(), outputs=frozenset({4}))
    place_problem = PlaceProblem.of(graph, range(5), [1, 1, 1, 1, 1], 10)
    free = keep_at(place_problem, [3, 4], (), 10, 5.0)
    assert isinstance(free, KeptAtPlaces) and free.at_least == 2 and free.again[1] == {0, 1}
    counted = keep_at(place_problem, [3, 4], [(0, 1)], 10, 5.0)
    assert isinstance(counted, KeptAtPlaces) and counted.at_least == 3 and counted.again[1] == {0, 1, 3}
    none = keep_at(place_problem, [3, 4], [(0, 1)], 3, 5.0)
    assert isinstance(none, NoneKept) and none.at_least is None


def test_what_the_searches_know_is_said() -> None:
    made, order, peak = problem(60, 1)
    found = fixed(made.graph, order, made.durations, int(peak * 0.85))
    assert found is not None and 0 < found.at_least <= found.cost


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_goes_below_the_bound(seed: int) -> None:
    made, order, peak = problem(24, seed)
    found = fixed(made.graph, order, made.durations, int(peak * 0.85))
    bound = bound_at_places(made.graph, order, made.durations, int(peak * 0.85)).at_least
    assert found is None or (bound is not None and 0 < bound <= found.cost)
    assert bound_at_places(made.graph, order, made.durations, peak).at_least == 0


def test_the_bound_is_what_one_repeat_costs_where_one_is_enough() -> None:
    made, order, peak = problem(24, 0)
    found = fixed(made.graph, order, made.durations, int(peak * 0.85))
    assert found is not None and len(found.sequence) == 25
    assert bound_at_places(made.graph, order, made.durations, int(peak * 0.85)).at_least == found.cost
