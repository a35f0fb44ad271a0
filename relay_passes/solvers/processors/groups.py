"""Groups of tasks that stay on one processor, as tasks of a smaller problem, and its answers for the whole again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from relay_passes.solvers.processors.assign import MOST_LABELS, ProcessorAssignment, answer, assign_processors
from relay_passes.solvers.processors.bounds import lower_bound
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem, Task, TaskForm, TaskValue
from relay_passes.solvers.processors.search import evaluate, started
from tvm_ext.core.objectives import Objective

Groups = tuple[tuple[int, ...], ...]
"""Every task in one group; tasks of a group ascend, and groups stand in an order that works."""


def processors_of(problem: ProcessorProblem, tasks: Iterable[int]) -> frozenset[int]:
    """Processors that can run each of some tasks whole."""
    every = range(len(problem.names))
    return frozenset(p for p in every if all(problem.whole_form(task, p) is not None for task in tasks))


def ordered(problem: ProcessorProblem, owner: Sequence[int]) -> Groups | None:
    """Groups by the owner of each task, in an order that works; None if they read each other in a circle."""
    members: dict[int, list[int]] = {}
    edges = {(owner[m], own) for task, own in enumerate(owner) for m in problem.makers[task] if owner[m] != own}
    followers: dict[int, list[int]] = {}
    waiting = dict.fromkeys(owner, 0)
    for task, own in enumerate(owner):
        members.setdefault(own, []).append(task)
    for maker, reader in edges:
        followers.setdefault(maker, []).append(reader)
        waiting[reader] += 1
    ready = sorted(own for own, count in waiting.items() if not count)
    found: list[tuple[int, ...]] = []
    while ready:
        own = heappop(ready)
        found.append(tuple(members.pop(own)))
        for reader in followers.get(own, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, reader)
    return None if members else tuple(found)


def contracted(problem: ProcessorProblem, groups: Groups) -> ProcessorProblem:
    """A task for each group: whole, on processors that can run all its tasks; alone, a task keeps all its forms."""
    owner = {task: number for number, group in enumerate(groups) for task in group}
    values: list[TaskValue] = []
    for value in problem.values:
        maker = owner[value.maker]
        readers = tuple(dict.fromkeys(owner[reader] for reader in value.readers if owner[reader] != maker))
        if readers:
            values.append(TaskValue(maker=maker, readers=readers, size_bytes=value.size_bytes))
    return ProcessorProblem(
        names=problem.names, powers=problem.powers, values=tuple(values), routes=problem.routes,
        tasks=tuple(_contracted_task(problem, group) for group in groups),
    )  # fmt: skip


def _contracted_task(problem: ProcessorProblem, group: Sequence[int]) -> Task:
    if len(group) == 1:
        return problem.tasks[group[0]]
    forms: list[TaskForm] = []
    for processor in sorted(processors_of(problem, group)):
        parts = [_whole_part(problem, task, processor) for task in group]
        time, energy = sum(part.time for part in parts), sum(map(problem.energy_of, parts))
        forms.append(TaskForm(parts=(FormPart(processor=processor, time=time, energy=energy),)))
    return Task(forms=tuple(forms), weights_bytes=sum(problem.tasks[task].weights_bytes for task in group))


def _whole_part(problem: ProcessorProblem, task: int, processor: int) -> FormPart:
    form = problem.whole_form(task, processor)
    assert form is not None
    return problem.tasks[task].forms[form].parts[0]


def expanded(
    problem: ProcessorProblem, groups: Groups, found: ProcessorAssignment
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Forms and sequence of all tasks, from an answer for the groups."""
    forms = [0] * len(problem.tasks)
    for group, form, task in zip(groups, found.forms, contracted(problem, groups).tasks, strict=True):
        for member in group:
            whole = problem.whole_form(member, task.forms[form].parts[0].processor)
            forms[member] = form if len(group) == 1 or whole is None else whole
    return tuple(forms), tuple(task for number in found.sequence for task in groups[number])


def assign_groups(
    problem: ProcessorProblem,
    groups: Groups,
    objective: Objective,
    *,
    labels: int = MOST_LABELS,
    use_solver: bool = True,
) -> ProcessorAssignment | None:
    """The best assignment found that leaves groups whole, as one of all tasks; or a single processor, where that is
    better. Its bound is one of all assignments, also of those that do not leave groups whole."""
    found = assign_processors(contracted(problem, groups), objective, labels=labels, use_solver=use_solver)
    if found is None:
        return None
    best = evaluate(problem, objective, *expanded(problem, groups, found))
    for start in started(problem, objective):
        if _keeps_whole(problem, groups, start.forms) and start.value < best.value:
            best = start
    return answer(problem, objective, best, lower_bound(problem, objective))


def _keeps_whole(problem: ProcessorProblem, groups: Groups, forms: Sequence[int]) -> bool:
    places = [{part.processor for part in t.forms[form].parts} for t, form in zip(problem.tasks, forms, strict=True)]
    return all(len(set[int]().union(*(places[task] for task in group))) == 1 for group in groups if len(group) > 1)
