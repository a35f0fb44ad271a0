"""Sharing tasks among processors: against trying all, bounds, planted answers."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from relay_passes.solvers.processors.assign import ProcessorAssignment, assign_processors
from relay_passes.solvers.processors.bounds import heads, lower_bound, rests
from relay_passes.solvers.processors.loads import stage_order
from relay_passes.solvers.processors.problem import ProcessorProblem, Route
from relay_passes.solvers.processors.search import improve, on_one, started
from tests.support.processor_problems import (
    best_by_trying_all,
    energy,
    halves,
    interval,
    problem_of,
    random_problem,
    run,
    whole,
)
from tests.support.sweeps import some_of
from tvm_ext.core.errors import MissingTool
from tvm_ext.core.objectives import Objective

OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
needs_ortools = pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="ortools is not installed")


def checked(problem: ProcessorProblem, found: ProcessorAssignment) -> None:
    """Lists hold each part once, in an order that the values allow; the value is what a run of the lists takes."""
    lists = {q: [one.task for one in listed] for q, listed in enumerate(found.lists)}
    for q, listed in enumerate(found.lists):
        chosen = [problem.tasks[t].forms[found.forms[t]] for t in lists[q]]
        assert [one.part for one in listed] == [p for form in chosen for p in form.parts if p.processor == q]
        for before, one in zip((None, *listed), listed, strict=False):
            earlier = before.end if before else 0
            for move in one.transfers:
                assert move.begin <= move.end <= move.ready <= one.begin
                if not problem.routes[move.source, q].has_dma and move.begin < move.end:
                    assert earlier <= move.begin
                    earlier = move.end
            assert earlier <= one.begin and one.end == one.begin + one.part.time
    parts = sum(len(task.forms[form].parts) for task, form in zip(problem.tasks, found.forms, strict=True))
    assert sum(map(len, lists.values())) == parts
    moves = [(m.value, m.source, m.target) for listed in found.lists for one in listed for m in one.transfers]
    assert len(moves) == len(set(moves)) == len(list(problem.crossings(found.forms)))
    makespan = max(one.end for listed in found.lists for one in listed)
    assert run(problem, found.forms, lists) == makespan
    values = {
        "makespan": makespan, "energy": energy(problem, found.forms), "throughput": interval(problem, found.forms),
    }  # fmt: skip
    assert found.value == values[found.objective]
    assert lower_bound(problem, found.objective) <= found.bound <= found.value


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("transfers", [False, True], ids=["shared memory", "transfers"])
@pytest.mark.parametrize("processors", [2, 3])
def test_small_graphs_are_solved_as_by_trying_all(objective: Objective, transfers: bool, processors: int) -> None:
    for seed in range(40):
        tasks = 5 if processors == 2 and seed < 8 else 4
        problem = random_problem(seed, tasks, processors=processors, transfers=transfers)
        found = assign_processors(problem, objective, use_solver=False)
        best = best_by_trying_all(problem, objective)
        assert (found.value if found else None) == best, seed
        if found:
            assert found.proved
            checked(problem, found)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("equal", [False, True], ids=["unlike", "equal"])
def test_answers_hold_and_are_no_worse_than_one_processor(objective: Objective, equal: bool) -> None:
    for seed in range(4):
        problem = random_problem(100 + seed, 14, equal=equal)
        found = assign_processors(problem, objective, labels=400, use_solver=False)
        if found is None:
            continue
        checked(problem, found)
        assert assign_processors(problem, objective, labels=400, use_solver=False) == found
        for processor in range(2):
            alone = on_one(problem, processor)
            if alone is not None:
                times = {"makespan": run, "energy": energy, "throughput": interval}
                listed = ({processor: list(range(14))},) if objective == "makespan" else ()
                assert found.value <= times[objective](problem, alone, *listed)


def test_bounds_hold_for_the_best() -> None:
    for seed in range(60):
        problem = random_problem(500 + seed, 4)
        for objective in OBJECTIVES:
            best = best_by_trying_all(problem, objective)
            assert best is None or lower_bound(problem, objective) <= best
        found = assign_processors(problem, "makespan", use_solver=False)
        assert found
        head, rest = heads(problem), rests(problem)
        for one in (one for listed in found.lists for one in listed):
            at = [part.processor for part in problem.tasks[one.task].forms[one.form].parts].index(one.part.processor)
            assert head[one.task] <= one.begin
            assert one.end + rest[one.task][one.form][at] <= found.value


def test_changes_gain() -> None:
    problem = random_problem(3, 20, equal=True)
    start = started(problem, "makespan")[-1]
    assert improve(problem, "makespan", start, 0, appends=20_000).value < 0.8 * start.value


def test_two_branches_run_at_once() -> None:
    work = [whole(0, 100), whole(1, 100)]
    problem = problem_of([[whole(0, 10)], work, work, [whole(0, 10)]], [(0, 1), (0, 2), (1, 3), (2, 3)],
                         route=Route(signal_time=5))  # fmt: skip
    found = assign_processors(problem, "makespan")
    assert found and found.proved and found.value == 10 + 5 + 100 + 5 + 10
    assert {len(listed) for listed in found.lists} == {1, 3}


def test_a_signal_that_takes_longer_than_the_work_is_not_sent() -> None:
    work = [whole(0, 100), whole(1, 100)]
    problem = problem_of([[whole(0, 10)], work, work, [whole(0, 10)]], [(0, 1), (0, 2), (1, 3), (2, 3)],
                         route=Route(signal_time=60))  # fmt: skip
    found = assign_processors(problem, "makespan")
    assert found and found.proved and found.value == 220 and not found.lists[1]


def test_a_layer_in_halves_takes_half_the_time() -> None:
    layer = [whole(0, 100), whole(1, 100), halves(50, 50)]
    problem = problem_of([layer] * 3, [(0, 1), (1, 2)], route=Route(signal_time=2))
    found = assign_processors(problem, "makespan")
    assert found and found.proved and found.value == 50 + 2 + 50 + 2 + 50
    assert found.forms == (2, 2, 2)


def test_a_processor_that_cannot_run_a_task_is_without_it() -> None:
    problem = problem_of([[whole(1, 50)], [whole(1, 50)]], [])
    found = assign_processors(problem, "makespan")
    assert found and found.value == 100 and not found.lists[0]


def test_a_value_crosses_once_for_all_its_readers() -> None:
    """Two readers that only the second processor runs: one transfer of 10 bytes, made by the reader, or by a DMA."""
    slow = Route(signal_time=3, time_per_byte=2.0)
    problem = problem_of([[whole(0, 10)], [whole(1, 10)], [whole(1, 10)]], [(0, 1), (0, 2)], route=slow)
    for route, dma_time in ((slow, 0), (replace(slow, has_dma=True), 0)):
        problem = replace(problem, routes={(0, 1): route, (1, 0): route})
        makespan = assign_processors(problem, "makespan")
        spent = assign_processors(problem, "energy")
        pipeline = assign_processors(problem, "throughput")
        assert makespan and makespan.value == 10 + 3 + 20 + 20 + dma_time
        assert spent and spent.value == 30 + (0 if route.has_dma else 20)
        assert pipeline and pipeline.value == (20 if route.has_dma else 40)


def test_energy_prefers_the_frugal_processor() -> None:
    problem = replace(problem_of([[whole(0, 10), whole(1, 15)]] * 3, [(0, 1), (1, 2)]), powers=(5, 2))
    found = assign_processors(problem, "energy")
    assert found and found.proved and found.value == 90 and not found.lists[0]


def test_a_chain_becomes_a_pipeline_of_two_stages() -> None:
    problem = problem_of([[whole(0, t), whole(1, t)] for t in (30, 20, 40, 10)], [(0, 1), (1, 2), (2, 3)])
    found = assign_processors(problem, "throughput")
    assert found and found.proved and found.value == 50
    assert {tuple(one.task for one in listed) for listed in found.lists} == {(0, 1), (2, 3)}


def test_no_pipeline_goes_back() -> None:
    there_and_back = problem_of([[whole(0, 1)], [whole(1, 1)], [whole(0, 1)]], [(0, 1), (1, 2)])
    assert assign_processors(there_and_back, "throughput") is None
    assert stage_order(3, [(2, 0), (0, 1)]) == (2, 0, 1) and stage_order(2, [(0, 1), (1, 0)]) is None


@needs_ortools
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_constraint_program_agrees_with_trying_all(objective: Objective) -> None:
    from relay_passes.solvers.processors.exact import assign_exactly

    proved = 0
    for seed in range(25):
        problem = random_problem(seed, 4)
        start = next(iter(started(problem, objective)), None)
        best = best_by_trying_all(problem, objective)
        found, bound = assign_exactly(problem, objective, start, lower_bound(problem, objective), effort=1.0)
        assert (found is None) == (best is None)
        if found and best is not None:
            assert bound <= best <= found.value, seed
            proved += bound == found.value
    assert proved >= (12 if objective == "throughput" else 22)


@needs_ortools
@pytest.mark.parametrize("tasks", some_of([15], sweep=[10, 20, 25, 30]))
@pytest.mark.parametrize("seed", some_of([2], sweep=[0, 1, 3, 5]))
@pytest.mark.slow
def test_within_a_twentieth_of_the_bound(tasks: int, seed: int) -> None:
    """Graphs of any kind and of branches, on equal processors and on unlike ones."""
    for equal, branches in product((False, True), repeat=2):
        problem = random_problem(seed, tasks, equal=equal, series_parallel=branches)
        found = assign_processors(problem, "makespan")
        assert found and found.bound <= found.value <= 1.05 * found.bound, (equal, branches)
        checked(problem, found)


@needs_ortools
@pytest.mark.slow
def test_a_bound_that_is_far_below_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a short search leaves it far below: by windows, or by another search that begins there."""
    from relay_passes.solvers.processors import assign, exact

    problem, below = random_problem(2, 20), lower_bound(random_problem(2, 20), "makespan")
    start = started(problem, "makespan")[0]
    once, bound_of_one = exact.assign_exactly(problem, "makespan", start, below, effort=0.01)
    found, bound = exact.assign_exactly(problem, "makespan", once, bound_of_one, effort=0.5, from_below=True)
    assert found and once and bound_of_one < bound <= found.value <= once.value
    monkeypatch.setattr(exact, "EFFORT", {"makespan": 0.01})
    monkeypatch.setattr(exact, "FAR_EFFORT", 0.01)
    near = assign_processors(problem, "makespan", labels=200)
    monkeypatch.setattr(assign, "FAR", 1.0)
    far = assign_processors(problem, "makespan", labels=200)
    assert near and far and far.bound < near.bound <= near.value <= far.value


@needs_ortools
@pytest.mark.parametrize("processors", [2, 3])
def test_windows_bound_the_best(processors: int) -> None:
    """Transfers, DMAs, tasks in parts, processors that cannot run all."""
    from relay_passes.solvers.processors.exact import window_bound

    raised = 0
    for seed in range(40):
        problem = random_problem(seed, 5 if processors == 2 and seed < 8 else 4, processors=processors)
        best, below = best_by_trying_all(problem, "makespan"), lower_bound(problem, "makespan")
        bound = window_bound(problem, below)
        assert best is not None and below <= bound <= best, seed
        raised += bound > below
    assert raised >= 5


@needs_ortools
def test_windows_see_transfers() -> None:
    """Two branches behind one task, whose values take longer to cross than they gain: one processor runs both."""
    from relay_passes.solvers.processors.exact import window_bound

    for seed, equal, least in ((3, True, 840), (5, False, 880)):
        problem = random_problem(seed, 30, equal=equal, series_parallel=True)
        assert window_bound(problem, lower_bound(problem, "makespan")) >= least


def test_without_ortools_its_program_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    for module in ("exact",):
        name = f"relay_passes.solvers.processors.{module}"
        monkeypatch.delitem(sys.modules, name, raising=False)
        with pytest.raises(MissingTool, match="tvm-ext\\[exact\\]"):
            importlib.import_module(name)
