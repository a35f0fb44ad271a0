"""Search the processor and the order of tasks locally, from several initial assignments.

The search is late acceptance (Burke and Bykov, 2017): a change is kept if its result is no worse than the current
result, or than the result some changes ago.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from random import Random

from relay_passes.solvers.processors.bounds import LARGE, tails
from relay_passes.solvers.processors.loads import energy_of, interval_of
from relay_passes.solvers.processors.problem import ProcessorProblem
from relay_passes.solvers.processors.timing import Clock, makespan_of
from tvm_ext.core.objectives import Objective

MOST_APPENDS = 100_000
"""Number of task times that are computed in all. Each evaluation of a run counts all its tasks."""
LATE = 40
"""Number of changes that the compared result lies back."""


@dataclass(frozen=True, kw_only=True)
class FoundForms:
    """A candidate.

    forms: of each task.
    sequence: whose tasks of one processor are its schedule.
    value: of the objective.
    beside: decides among equal values.
    """

    forms: tuple[int, ...]
    sequence: tuple[int, ...]
    value: int
    beside: int

    @property
    def key(self) -> tuple[int, int]:
        return self.value, self.beside


def evaluate(
    problem: ProcessorProblem, objective: Objective, forms: tuple[int, ...], sequence: tuple[int, ...]
) -> FoundForms:
    """Return a candidate with its value. Where the stages of a pipeline have no order, the value is far too large."""
    if objective == "makespan":
        value, beside = makespan_of(problem, forms, sequence)
    elif objective == "energy":
        value, beside = energy_of(problem, forms), 0
    else:
        interval = interval_of(problem, forms)
        value, beside = (LARGE, 0) if interval is None else (interval, energy_of(problem, forms))
    return FoundForms(forms=forms, sequence=sequence, value=value, beside=beside)


def started(problem: ProcessorProblem, objective: Objective) -> list[FoundForms]:
    """Return initial candidates, the best first. They include single processors that can run all tasks."""
    found = [evaluate(problem, objective, *start) for start in starts(problem, objective)]
    return sorted((one for one in found if one.value < LARGE), key=lambda one: one.key)


def improve(
    problem: ProcessorProblem, objective: Objective, start: FoundForms, bound: int, *, appends: int = MOST_APPENDS
) -> FoundForms:
    """Return the best result of many successive changes, no worse than the start.

    appends: the effort.
    """
    rounds = appends // max(1, len(problem.tasks))
    random, best, now = Random(len(problem.tasks)), start, start
    history = [start.key] * LATE
    moves: list[Callable[[Random, ProcessorProblem, FoundForms], tuple[tuple[int, ...], tuple[int, ...]] | None]]
    moves = [_change_form, _change_run] if objective != "makespan" else [_change_form, _change_run, _change_place]
    for number in range(rounds):
        changed = moves[number % len(moves)](random, problem, now)
        if changed is None:
            continue
        new = evaluate(problem, objective, *changed)
        if new.key <= max(now.key, history[number % LATE]) and new.value < LARGE:
            now = new
        history[number % LATE] = now.key
        if now.key < best.key:
            best = now
            if best.value <= bound:
                break
    return best


def _change_form(
    random: Random, problem: ProcessorProblem, now: FoundForms
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Give a task another form."""
    task = random.randrange(len(now.forms))
    count = len(problem.tasks[task].forms)
    if count == 1:
        return None
    form = (now.forms[task] + 1 + random.randrange(count - 1)) % count
    return (*now.forms[:task], form, *now.forms[task + 1 :]), now.sequence


def _change_run(
    random: Random, problem: ProcessorProblem, now: FoundForms
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Move consecutive tasks of the sequence to a single processor, where it can run them."""
    begin = random.randrange(len(now.sequence))
    end = begin + 2 + min(random.randrange(len(now.sequence)), random.randrange(len(now.sequence)))
    target, forms = random.randrange(len(problem.names)), list(now.forms)
    for task in now.sequence[begin:end]:
        form = problem.whole_form(task, target)
        forms[task] = forms[task] if form is None else form
    return None if tuple(forms) == now.forms else (tuple(forms), now.sequence)


def _change_place(
    random: Random, problem: ProcessorProblem, now: FoundForms
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Move a task within the sequence, after the tasks it reads and ahead of the tasks that read it."""
    at = random.randrange(len(now.sequence))
    task, places = now.sequence[at], {task: place for place, task in enumerate(now.sequence)}
    first = max((places[maker] for maker in problem.makers[task]), default=-1) + 1
    last = min((places[follower] for follower in problem.followers[task]), default=len(now.sequence)) - 1
    if first == last:
        return None
    new = random.randrange(first, last + 1)
    left = [*now.sequence[:at], *now.sequence[at + 1 :]]
    return now.forms, (*left[:new], task, *left[new:])


MOST_STAGE_ORDERS = 24


def on_one(problem: ProcessorProblem, processor: int) -> tuple[int, ...] | None:
    """Return the forms of all tasks whole on one processor, or None if it cannot run all tasks."""
    forms = [problem.whole_form(task, processor) for task in range(len(problem.tasks))]
    return tuple(form for form in forms if form is not None) if None not in forms else None


def starts(problem: ProcessorProblem, objective: Objective) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield forms and a sequence for each initial assignment."""
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
    """Schedule the task with the longest path to the end first, in the form that ends first (HEFT).

    whole: whether to avoid split forms.
    """
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
    """Return the form of least energy for each task, apart from transfers."""
    return tuple(
        min(range(len(task.forms)), key=lambda form: sum(map(problem.energy_of, task.forms[form].parts)))
        for task in problem.tasks
    )


def _stage_cuts(problem: ProcessorProblem, stages: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield forms that fill one stage after another up to several loads, in an order of the processors."""
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
