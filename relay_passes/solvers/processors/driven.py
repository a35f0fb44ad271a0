"""Time runs with accelerators that a core starts and awaits, and improve their order by starting them earlier.

The search treats an accelerator as a processor with its own schedule. In fact the core starts it between two of its own
tasks, and stays in the accelerator interface while it waits. So this file times a found order again, and improves it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from relay_passes.solvers.processors.assign import ProcessorAssignment
from relay_passes.solvers.processors.problem import ProcessorProblem

ROUNDS = 3
"""Number of rounds in which every call is tried at earlier positions."""


@dataclass(frozen=True, kw_only=True)
class Driving:
    """The accelerators of a problem.

    accelerators: the processors that the first processor starts.
    call_time: the time of a start on that core, or of a wait that finds the accelerator done. The problem already
    includes the start in the time of each accelerator task.
    """

    accelerators: frozenset[int]
    call_time: int


class _Run:
    """The processors while tasks run in order.

    at: the task of each accelerator that has not been awaited yet.
    """

    def __init__(self, problem: ProcessorProblem, driving: Driving, forms: Sequence[int]) -> None:
        self.problem, self.driving, self.forms = problem, driving, forms
        self.free = [0] * len(problem.names)
        self.at: dict[int, int] = {}
        self.ends: dict[int, list[tuple[int, int]]] = {}
        self.moved: set[tuple[int, int, int]] = set()

    def wait(self, accelerator: int) -> None:
        """Let the core wait for the task of an accelerator, if there is one."""
        task = self.at.pop(accelerator, None)
        if task is not None:
            self.free[0] = max(self.free[0] + self.driving.call_time, self.free[accelerator])
            self.ends[task] = [(0, self.free[0])]

    def append(self, task: int) -> None:
        """Run a task after all earlier tasks."""
        for accelerator in [*self.at]:
            if self.at[accelerator] in self.problem.makers[task]:
                self.wait(accelerator)
        parts = self.problem.tasks[task].forms[self.forms[task]].parts
        found: list[tuple[int, int]] = []
        for part in parts:
            caller = 0 if part.processor in self.driving.accelerators else part.processor
            if caller != part.processor:
                self.wait(part.processor)
            self._move(task, part.processor)
            begin = self.free[caller]
            for maker in self.problem.makers[task]:
                for source, end in self.ends[maker]:
                    route = self.problem.routes.get((source, caller))
                    begin = max(begin, end + (route.signal_time if route and source != caller else 0))
            if caller == part.processor:
                end = self.free[caller] = begin + part.time
            else:
                self.free[0] = begin + self.driving.call_time
                end = self.free[part.processor] = begin + part.time
                self.at[part.processor] = task
            found.append((part.processor, end))
        self.ends[task] = found

    def _move(self, task: int, target: int) -> None:
        """Let the core move what a task reads to the memory that its processor reaches, each value once."""
        for value, maker in self.problem.read_from[task]:
            for part in self.problem.tasks[maker].forms[self.forms[maker]].parts:
                key = value, part.processor, target
                if part.processor == target or key in self.moved or (part.processor, target) not in self.problem.routes:
                    continue
                self.moved.add(key)
                time = self.problem.transfer_time(value, part, target)
                if time:
                    made = max(end for _, end in self.ends[maker])
                    self.free[0] = max(self.free[0], made) + time

    def end(self) -> int:
        """Return the time at which everything is done."""
        for accelerator in [*self.at]:
            self.wait(accelerator)
        return max(self.free)


def driven_makespan(problem: ProcessorProblem, driving: Driving, forms: Sequence[int], sequence: Iterable[int]) -> int:
    """Return the makespan of a sequence in which accelerators are awaited where needed.

    An accelerator is awaited where its result is read, or where it is started again.
    """
    run = _Run(problem, driving, forms)
    for task in sequence:
        run.append(task)
    return run.end()


def driven(
    problem: ProcessorProblem, driving: Driving, found: ProcessorAssignment, *, in_order: bool = False
) -> ProcessorAssignment:
    """Return the assignment in the best order found by starting calls earlier, with the makespan as the core drives it.

    in_order: whether to keep the order of the assignment.
    """
    if in_order:
        return replace(found, value=driven_makespan(problem, driving, found.forms, found.sequence))
    listed = sorted(
        (one.begin, found.sequence.index(one.task), one.task) for entries in found.lists for one in entries
    )  # a task in parts stands where its first part starts
    by_time = tuple(dict.fromkeys(task for _, _, task in listed))
    orders = [tuple(range(len(problem.tasks))), found.sequence, *([by_time] if _is_order(problem, by_time) else [])]
    best = min(orders, key=lambda order: driven_makespan(problem, driving, found.forms, order))
    value = driven_makespan(problem, driving, found.forms, best)
    calls = [task for task in best if _is_driven(problem, found.forms, task, driving.accelerators)]
    for _ in range(ROUNDS):
        before = value
        for call in calls:
            for order in _earlier(problem, best, call):
                time = driven_makespan(problem, driving, found.forms, order)
                if time < value:
                    best, value = order, time
        if value == before:
            break
    return replace(found, sequence=best, value=value)


def _is_order(problem: ProcessorProblem, order: Sequence[int]) -> bool:
    place = {task: number for number, task in enumerate(order)}
    return all(place[maker] < place[task] for task in order for maker in problem.makers[task])


def _is_driven(problem: ProcessorProblem, forms: Sequence[int], task: int, accelerators: Collection[int]) -> bool:
    return any(part.processor in accelerators for part in problem.tasks[task].forms[forms[task]].parts)


def _earlier(problem: ProcessorProblem, order: tuple[int, ...], call: int) -> Iterable[tuple[int, ...]]:
    """Yield orders with a call moved ahead of earlier tasks, as far as the call's operands allow."""
    at = order.index(call)
    for place in range(at - 1, -1, -1):
        if order[place] in problem.makers[call]:
            return
        yield (*order[:place], call, *order[place:at], *order[at + 1 :])
