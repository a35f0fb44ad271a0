"""Lower bounds of all assignments: the longest path, and the load of processors between heads and tails.

Loads are bounded by a weighted mean over the processors: for any weights, a task adds at least the weighted time of its
cheapest form. On paths, every part waits for all pieces of what its task reads, at least for the signal where two
processors differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem
from tvm_ext.core.objectives import Objective

STEPS = 24
"""Number of weights that are tried for two processors. More processors get fewer weights each."""
MOST_WINDOWS = 24
"""Number of heads from which on loads are bounded."""

LARGE = 1 << 62
"""Larger than any time or energy."""


def lower_bound(problem: ProcessorProblem, objective: Objective) -> int:
    """Return a value of the objective that no assignment undercuts."""
    if objective == "energy":
        return sum(min(sum(map(problem.energy_of, form.parts)) for form in task.forms) for task in problem.tasks)
    if objective == "throughput":
        return max(
            (load_bound(weights, weighted_times(problem, weights)) for weights in weightings(problem)), default=0
        )
    return _makespan_bound(problem)


def weightings(problem: ProcessorProblem) -> Iterator[tuple[int, ...]]:
    """Yield weights of the processors on a grid."""
    count = len(problem.names)
    steps = STEPS if count <= 2 else 6 if count == 3 else 3
    for weights in product(range(steps + 1), repeat=count - 1):
        if sum(weights) <= steps:
            yield (*weights, steps - sum(weights))


def weighted_times(problem: ProcessorProblem, weights: Sequence[int]) -> list[int]:
    """Return the least weighted time that each task adds to the processors."""
    return [
        min(sum(weights[part.processor] * part.time for part in form.parts) for form in task.forms)
        for task in problem.tasks
    ]


def load_bound(weights: Sequence[int], times: Sequence[int], busy: Sequence[int] = ()) -> int:
    """Return the time at which all processors can be done, where they are `busy` until given times."""
    total = sum(times) + sum(weight * until for weight, until in zip(weights, busy, strict=False))
    return -(-total // sum(weights))


def _lag(problem: ProcessorProblem, value: int, part: FormPart, target: int) -> int:
    """Return the least time from the end of a part until another processor has its piece."""
    if part.processor == target:
        return 0
    return problem.routes[part.processor, target].signal_time + problem.transfer_time(value, part, target)


def heads(problem: ProcessorProblem) -> list[int]:
    """Return for each task a time ahead of which none of its parts can start."""
    begins: list[list[list[int]]] = []
    for number, task in enumerate(problem.tasks):
        begins.append([])
        for form in task.forms:
            begins[-1].append([_earliest(problem, number, part.processor, begins) for part in form.parts])
    return [min((at for form in forms for at in form), default=0) for forms in begins]


def _earliest(problem: ProcessorProblem, task: int, target: int, begins: list[list[list[int]]]) -> int:
    """Return the earliest start of a part on a processor, where each value is produced in the best form for that."""
    at = 0
    for value in problem.read_values[task]:
        maker = problem.values[value].maker
        arrivals = [
            max(
                begin + part.time + _lag(problem, value, part, target)
                for begin, part in zip(parts, form.parts, strict=True)
            )
            for parts, form in zip(begins[maker], problem.tasks[maker].forms, strict=True)
        ]
        at = max(at, min(arrivals))
    return at


def tails(problem: ProcessorProblem) -> tuple[list[int], list[int]]:
    """Return lower bounds of the time to the end of the run.

    The first list counts from the start of each task, the second from the end of one of its parts.
    """
    behind = rests(problem)
    through = [
        min(
            max(part.time + rest for part, rest in zip(form.parts, own, strict=True))
            for form, own in zip(task.forms, forms, strict=True)
        )
        for task, forms in zip(problem.tasks, behind, strict=True)
    ]
    return through, [min(map(min, forms)) for forms in behind]


def rests(problem: ProcessorProblem) -> list[list[list[int]]]:
    """Return the least time from the end of each part to the end of the run, by task, form and part."""
    made: list[list[int]] = [[] for _ in problem.tasks]
    for number, value in enumerate(problem.values):
        made[value.maker].append(number)
    through: list[list[int]] = [[] for _ in problem.tasks]
    found: list[list[list[int]]] = [[] for _ in problem.tasks]
    for number in reversed(range(len(problem.tasks))):
        forms = problem.tasks[number].forms
        found[number] = [[_rest(problem, made[number], part, through) for part in form.parts] for form in forms]
        through[number] = [
            max(part.time + rest for part, rest in zip(form.parts, own, strict=True))
            for form, own in zip(forms, found[number], strict=True)
        ]
    return found


def _rest(problem: ProcessorProblem, made: Sequence[int], part: FormPart, through: list[list[int]]) -> int:
    """Return the least time from the end of a part to the end of the run, with the best form of each reader."""
    longest = 0
    for value in made:
        for reader in problem.values[value].readers:
            forms = zip(problem.tasks[reader].forms, through[reader], strict=True)
            longest = max(
                longest,
                min(
                    least + min(_lag(problem, value, part, own.processor) for own in form.parts)
                    for form, least in forms
                ),
            )
    return longest


def _makespan_bound(problem: ProcessorProblem) -> int:
    """Return the larger of the longest path and the loads of tasks with a long enough head and rest."""
    head = heads(problem)
    through, behind = tails(problem)
    bound = max((at + rest for at, rest in zip(head, through, strict=True)), default=0)
    starts = sorted(set(head))
    starts = starts[:: max(1, len(starts) // MOST_WINDOWS)]
    by_rest = sorted(range(len(problem.tasks)), key=lambda task: -behind[task])
    for weights in weightings(problem):
        times, weight = weighted_times(problem, weights), sum(weights)
        for start in starts:
            total = 0
            for task in by_rest:
                if head[task] >= start:
                    total += times[task]
                    bound = max(bound, start + behind[task] - (-total // weight))
    return bound
