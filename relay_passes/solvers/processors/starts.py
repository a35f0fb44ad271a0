"""Assignments to begin with: all on one processor, each task where it ends first, stages cut from an order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from relay_passes.solvers.processors.bounds import tails
from relay_passes.solvers.processors.problem import ProcessorProblem
from relay_passes.solvers.processors.timing import Clock
from tvm_ext.core.objectives import Objective

MOST_STAGE_ORDERS = 24


def on_one(problem: ProcessorProblem, processor: int) -> tuple[int, ...] | None:
    """Forms of all tasks whole on one processor; None if it cannot run all."""
    forms = [problem.whole_form(task, processor) for task in range(len(problem.tasks))]
    return tuple(form for form in forms if form is not None) if None not in forms else None


def starts(problem: ProcessorProblem, objective: Objective) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Forms and a sequence, each."""
    count, order = len(problem.names), tuple(range(len(problem.tasks)))
    for processor in range(count):
        forms = on_one(problem, processor)
        if forms is not None:
            yield forms, order
    if objective == "makespan":
        yield earliest_ends(problem)
        yield earliest_ends(problem, whole=True)
    elif objective == "energy":
        yield _least_energy(problem), order
    else:
        for number, stages in enumerate(permutations(range(count))):
            if number < MOST_STAGE_ORDERS:
                yield from ((forms, order) for forms in _stage_cuts(problem, stages))


def earliest_ends(problem: ProcessorProblem, *, whole: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The task with the longest way to the end first, in the form that ends first (HEFT). whole: no splits."""
    through, _ = tails(problem)
    clock, forms, sequence = Clock(problem), [0] * len(problem.tasks), list[int]()
    waiting = [len(makers) for makers in problem.makers]
    ready = [task for task, makers in enumerate(waiting) if not makers]
    while ready:
        task = min(ready, key=lambda one: (-through[one], one))
        ready.remove(task)
        tried: list[tuple[int, int, int]] = []
        for form, it in enumerate(problem.tasks[task].forms):
            if not whole or len(it.parts) == 1 or all(len(other.parts) > 1 for other in problem.tasks[task].forms):
                trial = clock.copy()
                tried.append((trial.append(task, form), sum(trial.free), form))
        forms[task] = min(tried)[2]
        clock.append(task, forms[task])
        sequence.append(task)
        for follower in problem.followers[task]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    return tuple(forms), tuple(sequence)


def _least_energy(problem: ProcessorProblem) -> tuple[int, ...]:
    """Each task in the form of least energy, transfers aside."""
    return tuple(
        min(range(len(task.forms)), key=lambda form: sum(map(problem.energy_of, task.forms[form].parts)))
        for task in problem.tasks
    )


def _stage_cuts(problem: ProcessorProblem, stages: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Forms that fill one stage after the other up to some load each, in an order of the processors."""
    place = {processor: number for number, processor in enumerate(stages)}
    options = [
        sorted(
            (max(place[p.processor] for p in form.parts), min(place[p.processor] for p in form.parts), number)
            for number, form in enumerate(task.forms)
        )
        for task in problem.tasks
    ]
    times = [[sum(part.time for part in form.parts) for form in task.forms] for task in problem.tasks]
    total = sum(map(min, times))
    for step in range(2 * len(stages) + 6):
        limit, loads, at = total * step // 8, [0] * len(stages), [0] * len(problem.tasks)
        forms: list[int] = []
        for task, makers in enumerate(problem.makers):
            earliest = max((at[maker] for maker in makers), default=0)
            open_ = [option for option in options[task] if option[1] >= earliest]
            if not open_:
                return
            fits = [o for o in open_ if loads[o[0]] + times[task][o[2]] <= limit]
            last, _, form = (fits or open_)[0]
            loads[last] += times[task][form]
            at[task] = last
            forms.append(form)
        yield tuple(forms)
