"""Search the processors of each task and the per-core schedules, with a lower bound.

Three methods follow each other until one proves the result optimal: labels that are extended task by task, which is
exact where few values are alive at a time; changes to the best assignment so far; and a constraint program, where
ortools is installed and tasks are few. Where a makespan is still far above its bound, windows improve the bound, more
labels improve the result, and a search from below improves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from relay_passes.solvers.processors.bounds import LARGE, lower_bound
from relay_passes.solvers.processors.frontier import LoadLabels, TimeLabels, sweep
from relay_passes.solvers.processors.problem import ProcessorProblem
from relay_passes.solvers.processors.search import FoundForms, evaluate, improve, started
from relay_passes.solvers.processors.timing import ListedTask, listed_tasks
from tvm_ext.core.objectives import Objective

MOST_LABELS = 16_000
"""Approximate number of labels that a search creates."""
WIDTH = 6
"""Number of labels that the first sweep keeps."""
GROWTH = 4
"""Factor by which each further sweep keeps more labels."""
FAR = 0.05
"""Distance of a makespan from its bound, relative to the bound, beyond which more expensive methods are tried."""
MORE_LABELS = 8
"""Factor by which these methods create more labels."""
MOST_EXACT = {"makespan": 40, "energy": 600, "throughput": 600}
"""Most tasks for which a constraint program is tried."""


@dataclass(frozen=True, kw_only=True)
class ProcessorAssignment:
    """An assignment of tasks to processors.

    forms: the form of each task.
    sequence: the tasks, in an order that agrees with all per-core schedules.
    lists: the per-core schedules.
    value: of the objective.
    bound: no assignment has a lower value.
    """

    objective: Objective
    forms: tuple[int, ...]
    sequence: tuple[int, ...]
    lists: tuple[tuple[ListedTask, ...], ...]
    value: int
    bound: int

    @property
    def proved(self) -> bool:
        return self.value == self.bound


def assign_processors(
    problem: ProcessorProblem, objective: Objective, *, labels: int = MOST_LABELS, use_solver: bool = True
) -> ProcessorAssignment | None:
    """Return the best assignment found, never worse than the best processor that can run all tasks.

    The same problem gives the same assignment. None where no order of the stages of a pipeline is found.
    labels: effort of the search.
    use_solver: whether ortools is used where it is installed.
    """
    bound = lower_bound(problem, objective)
    found = started(problem, objective)
    best = found[0] if found else None
    best, bound = _by_labels(problem, objective, best, bound, labels)
    if best and best.value > bound:
        best = improve(problem, objective, best, bound, appends=6 * labels)
    unproved = bound < (best.value if best else LARGE)
    if use_solver and unproved and len(problem.tasks) <= MOST_EXACT[objective] and find_spec("ortools") is not None:
        best, bound = _by_program(problem, objective, best, bound, labels)
    return answer(problem, objective, best, bound) if best else None


def answer(problem: ProcessorProblem, objective: Objective, best: FoundForms, bound: int) -> ProcessorAssignment:
    """Return a candidate with its per-core schedules and times."""
    return ProcessorAssignment(
        objective=objective, forms=best.forms, sequence=best.sequence,
        lists=listed_tasks(problem, best.forms, best.sequence), value=best.value, bound=bound,
    )  # fmt: skip


def _by_program(
    problem: ProcessorProblem, objective: Objective, best: FoundForms | None, bound: int, labels: int
) -> tuple[FoundForms | None, int]:
    """Run the constraint program, then close the gap between a makespan and its bound.

    The most expensive method comes last.
    """
    from relay_passes.solvers.processors.exact import assign_exactly, window_bound

    best, bound = assign_exactly(problem, objective, best, bound)
    if objective == "makespan" and _is_far(best, bound):
        bound = window_bound(problem, bound)
        if _is_far(best, bound):
            best, bound = _by_labels(problem, objective, best, bound, MORE_LABELS * labels)
        if _is_far(best, bound):
            best, bound = assign_exactly(problem, objective, best, bound, from_below=True)
    return best, bound


def _is_far(best: FoundForms | None, bound: int) -> bool:
    return best is not None and best.value > (1 + FAR) * bound


def _by_labels(
    problem: ProcessorProblem, objective: Objective, best: FoundForms | None, bound: int, labels: int
) -> tuple[FoundForms | None, int]:
    """Sweep with more and more labels, until a sweep proves the best assignment, or the labels are spent."""
    makes = TimeLabels(problem) if objective == "makespan" else LoadLabels(problem, objective)
    width, base = WIDTH, bound
    while best is None or best.value > bound:
        most = best.value if best else LARGE
        swept = sweep(makes.start(base), makes.extend, len(problem.tasks), most, width)
        if swept.best:
            choices = swept.best.choices()
            forms = tuple(form for _, form in sorted(choices))
            best = evaluate(problem, objective, forms, tuple(task for task, _ in choices))
        if best is None and swept.bound == LARGE:
            return None, LARGE  # every assignment was considered
        bound, labels, width = max(bound, swept.bound), labels - swept.labels, width * GROWTH
        if swept.labels * GROWTH > labels:
            break
    return best, bound
