"""Stages of a pipeline begin at the first processor, where that costs little."""

from __future__ import annotations

import pytest

from relay_passes.solvers.processors.caller_first import caller_first
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem, Route, Task, TaskForm, TaskValue
from relay_passes.solvers.processors.search import FoundForms, evaluate


def chain(*times: tuple[int, ...]) -> ProcessorProblem:
    """Tasks one behind the other. times: of each on every processor that can run it, in order."""
    tasks = tuple(
        Task(forms=tuple(TaskForm(parts=(FormPart(processor=p, time=time),)) for p, time in enumerate(own)))
        for own in times
    )
    values = tuple(TaskValue(maker=n, readers=(n + 1,), size_bytes=8) for n in range(len(tasks) - 1))
    routes = {(0, 1): Route(signal_time=1), (1, 0): Route(signal_time=1)}
    return ProcessorProblem(names=("cpu0", "cpu1"), powers=(1, 1), tasks=tasks, values=values, routes=routes)


def stages(problem: ProcessorProblem, *forms: int) -> FoundForms:
    return evaluate(problem, "throughput", forms, tuple(range(len(forms))))


def test_stages_of_equal_processors_are_exchanged() -> None:
    problem = chain((100, 100), (40, 40), (60, 60))
    assert caller_first(problem, stages(problem, 1, 0, 0)).forms == (0, 1, 1)
    assert caller_first(problem, stages(problem, 0, 1, 1)).forms == (0, 1, 1)


@pytest.mark.parametrize(("slower", "forms"), [(102, (0, 1)), (103, (1, 0))])
def test_at_most_two_percent_are_given_up(slower: int, forms: tuple[int, ...]) -> None:
    problem = chain((slower, 100), (100, 100))
    assert caller_first(problem, stages(problem, 1, 0)).forms == forms


def test_what_one_processor_alone_can_run_stays() -> None:
    problem = chain((100,), (50, 50))
    assert caller_first(problem, stages(problem, 0, 0)).forms == (0, 0)
    cannot = chain((50, 50), (100,))
    assert caller_first(cannot, stages(cannot, 1, 0)).forms == (1, 0)


def test_layers_that_are_cut_stay_cut() -> None:
    halves = TaskForm(parts=(FormPart(processor=0, time=20, share=400), FormPart(processor=1, time=30, share=600)))
    plain = chain((100, 100), (50, 50), (100, 100))
    middle = Task(forms=(*plain.tasks[1].forms, halves))
    tasks = (plain.tasks[0], middle, plain.tasks[2])
    problem = ProcessorProblem(
        names=plain.names, powers=plain.powers, tasks=tasks, values=plain.values, routes=plain.routes
    )
    found = stages(problem, 1, 2, 0)
    assert found.value == 130 and caller_first(problem, found).forms == (0, 2, 1)
