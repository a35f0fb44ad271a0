"""Groups of tasks that stay on one processor: what is grouped, the smaller problem, answers for the whole."""

from __future__ import annotations

from random import Random
from typing import get_args

import pytest

from relay_passes.solvers.processors.groups import (
    Groups,
    assign_groups,
    contracted,
    group_by_branches,
    group_by_support,
    group_by_volume,
    group_kept,
    ordered,
    processors_of,
    volume_bytes,
)
from relay_passes.solvers.processors.problem import ProcessorProblem, Route
from tests.support.processor_problems import energy, halves, interval, problem_of, random_problem, run, whole
from tvm_ext.core.objectives import Objective

EITHER = [whole(0, 100), whole(1, 100)]
FIRST, SECOND = [whole(0, 100)], [whole(1, 100)]
INCEPTION = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (4, 6), (5, 6), (3, 6), (6, 7)]
"""A fork into branches (1, 4), (2, 5) and (3), which meet in 6."""


def holds(problem: ProcessorProblem, groups: Groups) -> None:
    """Each task once, in one group that some processor runs, and groups in an order that works."""
    owner = {task: number for number, group in enumerate(groups) for task in group}
    assert sorted(task for group in groups for task in group) == list(range(len(problem.tasks)))
    assert all(list(group) == sorted(group) for group in groups)
    assert all(owner[maker] <= owner[task] for task, makers in enumerate(problem.makers) for maker in makers)
    assert all(len(group) == 1 or processors_of(problem, group) for group in groups)


@pytest.mark.parametrize("seed", range(12))
def test_groupings_of_random_graphs_hold(seed: int) -> None:
    problem = random_problem(seed, 24)
    support = group_by_support(problem)
    for groups in (support, group_by_branches(problem), group_by_volume(problem, 2_000)):
        holds(problem, groups)
        smaller = contracted(problem, groups)
        assert len(smaller.tasks) == len(groups)
        assert sum(task.weights_bytes for task in smaller.tasks) == sum(task.weights_bytes for task in problem.tasks)
    assert all(len({processors_of(problem, (task,)) for task in group}) == 1 for group in support)
    limit = 2_000
    assert all(len(g) == 1 or volume_bytes(problem, g) <= limit for g in group_by_volume(problem, limit))


def test_connected_tasks_of_the_same_processors_are_one_group() -> None:
    problem = problem_of([EITHER, EITHER, SECOND, SECOND, EITHER], [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert group_by_support(problem) == ((0, 1), (2, 3), (4,))


def test_what_has_to_be_together_takes_all_between_with_it() -> None:
    """Sets that read each other in a circle become one."""
    chain = problem_of([EITHER] * 5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert group_kept(chain, [frozenset({1, 3})]) == ((0,), (1, 2, 3), (4,))
    assert group_kept(chain, [frozenset({2})]) == ((0,), (1,), (2,), (3,), (4,))
    crossed = problem_of([EITHER] * 5, [(0, 3), (1, 2), (0, 4), (3, 4)])
    assert group_kept(crossed, [frozenset({0, 2}), frozenset({1, 3})]) == ((0, 1, 2, 3), (4,))
    assert group_by_volume(chain, 1, [frozenset({1, 3})]) == ((0,), (1, 2, 3), (4,))
    assert group_by_support(chain, [frozenset({1, 3})]) == ((0, 1, 2, 3, 4),)
    alone = problem_of([EITHER, SECOND, FIRST], [(0, 1), (1, 2)])
    assert group_kept(alone, [frozenset({1, 2})]) == ((0,), (1,), (2,))  # no processor runs both


@pytest.mark.parametrize("seed", range(8))
def test_sets_of_random_graphs_stay_together(seed: int) -> None:
    rng = Random(seed)
    edges = {(maker, reader) for _ in range(20) for maker, reader in [sorted(rng.sample(range(16), 2))]}
    together = [frozenset(rng.sample(range(16), 2)) for _ in range(3)]
    for problem in (problem_of([EITHER] * 16, sorted(edges)), random_problem(seed, 16)):
        groups = group_kept(problem, together)
        holds(problem, groups)
        owner = {task: number for number, group in enumerate(groups) for task in group}
        assert len(processors_of(problem, range(16))) < 2 or all(
            len({owner[task] for task in tasks}) == 1 for tasks in together
        )


def test_groups_do_not_read_each_other_in_a_circle() -> None:
    """0 -> 2 past 1, which another processor runs: all of 0 and 2 in one group would read 1, and 1 would read it."""
    problem = problem_of([FIRST, SECOND, FIRST], [(0, 1), (1, 2), (0, 2)])
    assert group_by_support(problem) == ((0,), (1,), (2,))
    assert ordered(problem, [0, 1, 0]) is None


def test_branches_stay_whole() -> None:
    problem = problem_of([EITHER] * 8, INCEPTION)
    assert set(group_by_branches(problem)) == {(0,), (1, 4), (2, 5), (3,), (6,), (7,)}
    heads = problem_of([EITHER] * 6, [(0, 1), (1, 2), (1, 3), (2, 4), (3, 5)])
    assert set(group_by_branches(heads)) == {(0,), (1,), (2, 4), (3, 5)}
    inputs = problem_of([EITHER] * 5, [(0, 1), (2, 3), (1, 4), (3, 4)])
    assert set(group_by_branches(inputs)) == {(0, 1), (2, 3), (4,)}


def test_a_branch_that_holds_a_fork_is_one_group() -> None:
    edges = [(0, 1), (0, 5), (1, 2), (1, 3), (2, 4), (3, 4), (4, 6), (5, 6)]
    assert set(group_by_branches(problem_of([EITHER] * 7, edges))) == {(0,), (1, 2, 3, 4), (5,), (6,)}


def test_a_way_past_a_chain_is_no_branch() -> None:
    residual = problem_of([EITHER] * 4, [(0, 1), (1, 2), (0, 3), (2, 3)])
    assert group_by_branches(residual) == ((0,), (1,), (2,), (3,))


def test_a_branch_that_no_processor_can_run_is_left_apart() -> None:
    problem = problem_of([EITHER, FIRST, EITHER, EITHER, SECOND, EITHER, EITHER, EITHER], INCEPTION)
    assert set(group_by_branches(problem)) == {(0,), (1,), (4,), (2, 5), (3,), (6,), (7,)}


def test_consecutive_tasks_stay_together_up_to_a_volume() -> None:
    """Each task has 10 bytes of weights, and makes 10: two take 10 + 10 and the values 10 + 10 + 10."""
    chain = problem_of([EITHER] * 6, [(task, task + 1) for task in range(5)])
    assert volume_bytes(chain, (1, 2)) == 50
    assert group_by_volume(chain, 50) == ((0, 1), (2, 3), (4, 5))
    assert group_by_volume(chain, 49) == ((0, 1), (2,), (3,), (4, 5))
    assert group_by_volume(chain, 1_000) == (tuple(range(6)),)


def test_a_group_has_the_time_and_energy_of_its_tasks() -> None:
    problem = problem_of([[whole(0, 10, 7), whole(1, 30)], [whole(0, 20), halves(10, 10)], EITHER], [(0, 1), (1, 2)])
    smaller = contracted(problem, ((0, 1), (2,)))
    assert smaller.tasks[0].forms == (whole(0, 30, 27),)
    assert smaller.tasks[1] == problem.tasks[2]
    assert [(value.maker, value.readers) for value in smaller.values] == [(0, (1,))]


def test_branches_run_on_different_processors() -> None:
    edges = [(0, 1), (0, 3), (1, 2), (3, 4), (2, 5), (4, 5)]
    problem = problem_of([FIRST, EITHER, EITHER, EITHER, EITHER, FIRST], edges, route=Route(signal_time=3))
    found = assign_groups(problem, group_by_branches(problem), "makespan")
    assert found and found.value == 100 + 3 + 200 + 3 + 100
    assert {tuple(one.task for one in listed) for listed in found.lists} in (
        {(0, 1, 2, 5), (3, 4)}, {(0, 3, 4, 5), (1, 2)},
    )  # fmt: skip


@pytest.mark.parametrize("objective", get_args(Objective))
def test_answers_for_groups_hold_for_the_whole(objective: Objective) -> None:
    for seed in range(8):
        problem = random_problem(seed, 12)
        for groups in (group_by_support(problem), group_by_branches(problem), group_by_volume(problem, 2_500)):
            found = assign_groups(problem, groups, objective, labels=1_000, use_solver=False)
            if found is None:
                continue
            lists = {q: [one.task for one in listed] for q, listed in enumerate(found.lists)}
            values = {
                "makespan": run(problem, found.forms, lists), "energy": energy(problem, found.forms),
                "throughput": interval(problem, found.forms),
            }  # fmt: skip
            assert found.bound <= found.value == values[objective]
            for group in (group for group in groups if len(group) > 1):
                assert len({q for q, listed in lists.items() if set(listed) & set(group)}) == 1
