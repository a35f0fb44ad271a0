"""Labels for the makespan: lists of the processors, as far as tasks are appended to them.

The future of lists depends on which tasks are in them, on when each processor is free, and on when it can have each
value that is still to be read. A time before that at which a processor is free is as good as that.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from relay_passes.solvers.processors.bounds import LARGE, load_bound, rests, weighted_times, weightings
from relay_passes.solvers.processors.frontier import Label
from relay_passes.solvers.processors.problem import ProcessorProblem
from relay_passes.solvers.processors.timing import Clock

WEIGHTINGS = 3
"""Weights by which loads are bounded, those that bound the whole best."""


@dataclass(slots=True)
class _Lists:
    """done, ready: tasks, as bits. left: weighted times of tasks that are not done."""

    clock: Clock
    done: int
    ready: list[int]
    left: tuple[int, ...]


class TimeLabels:
    """Makes labels; `extend` appends every task that is ready in every form."""

    def __init__(self, problem: ProcessorProblem) -> None:
        self.problem = problem
        loads = {weights: load_bound(weights, weighted_times(problem, weights)) for weights in weightings(problem)}
        self.weights = sorted(loads, key=lambda weights: (-loads[weights], weights))[:WEIGHTINGS]
        self.times = list(zip(*(weighted_times(problem, weights) for weights in self.weights), strict=True))
        self.rests = rests(problem)
        self.lengths = [
            [
                tuple((part.processor, part.time + rest) for part, rest in zip(form.parts, own, strict=True))
                for form, own in zip(task.forms, forms, strict=True)
            ]
            for task, forms in zip(problem.tasks, self.rests, strict=True)
        ]
        self.dma_ways = [way for way, route in problem.routes.items() if route.has_dma]
        self.needs = [sum(1 << maker for maker in makers) for makers in problem.makers]
        self.read_by = [sum(1 << task for task in followers) for followers in problem.followers]
        self.values_of: list[list[int]] = [[] for _ in problem.tasks]
        for number, value in enumerate(problem.values):
            self.values_of[value.maker].append(number)
        self.readers = [sum(1 << reader for reader in dict.fromkeys(value.readers)) for value in problem.values]

    def start(self, bound: int) -> Label[_Lists]:
        """The empty lists."""
        ready = sorted((task for task, needs in enumerate(self.needs) if not needs), key=self._urgency)
        left = tuple(map(sum, zip(*self.times, strict=True)))
        return Label(key=0, costs=(), bound=bound, inner=_Lists(Clock(self.problem), 0, ready, left))

    def extend(self, label: Label[_Lists], most_tasks: int) -> tuple[Iterator[Label[_Lists]], bool]:
        """Labels one task on, of the tasks with the longest way to the end; and whether these are all."""
        ready = label.inner.ready
        labels = (
            self._append(label, task, form)
            for task in ready[:most_tasks]
            for form in range(len(self.problem.tasks[task].forms))
        )
        return labels, len(ready) <= most_tasks

    def _append(self, label: Label[_Lists], task: int, form: int) -> Label[_Lists]:
        before = label.inner
        clock, done = before.clock.copy(), before.done | 1 << task
        clock.append(task, form)
        bound = 0
        for (_, end, _), rest in zip(clock.ends[task], self.rests[task][form], strict=True):
            bound = max(bound, end + rest)
        woken = [f for f in self.problem.followers[task] if not self.needs[f] & ~done]
        ready = [other for other in before.ready if other != task]
        for follower in woken:
            insort(ready, follower, key=self._urgency)
        left = tuple(map(int.__sub__, before.left, self.times[task]))
        for weights, rest in zip(self.weights, left, strict=True):
            total = rest + sum(map(int.__mul__, weights, clock.free))
            bound = max(bound, -(-total // sum(weights)))
        for other in ready:
            bound = max(bound, self._least_end(clock.free, other))
        promise, bound = bound, max(bound, label.bound)
        self._forget(clock, task, done)
        key, costs = self._future(clock, done)
        return Label(
            key=key, costs=costs, bound=bound, inner=_Lists(clock, done, ready, left), promise=promise, task=task,
            form=form, before=label,
        )  # fmt: skip

    def _urgency(self, task: int) -> tuple[int, int]:
        return -min(max(length for _, length in lengths) for lengths in self.lengths[task]), task

    def _least_end(self, free: list[int], task: int) -> int:
        """A time before which all is not done, for a task that is ready, by when processors are free."""
        least = LARGE
        for lengths in self.lengths[task]:
            end = 0
            for processor, length in lengths:
                if free[processor] + length > end:
                    end = free[processor] + length
            least = min(least, end)
        return least

    def _forget(self, clock: Clock, task: int, done: int) -> None:
        """Leaves out what no task reads any more."""
        for maker in (*self.problem.makers[task], task):
            if not self.read_by[maker] & ~done:
                del clock.ends[maker]
        for key in [key for key in clock.arrived if not self.readers[key[0]] & ~done]:
            del clock.arrived[key]

    def _future(self, clock: Clock, done: int) -> tuple[Hashable, tuple[int, ...]]:
        """The key: tasks done, pieces that are still to be transferred. Costs: when processors are free, when values
        are there."""
        shape: list[int] = [done]
        costs = [*clock.free, *(clock.channels.get(way, 0) for way in self.dma_ways)]
        for maker in sorted(clock.ends):
            parts = clock.ends[maker]
            for value in self.values_of[maker]:
                if not self.readers[value] & ~done:
                    continue
                for target, free in enumerate(clock.free):
                    there = free
                    for source, end, part in parts:
                        if source == target:
                            continue
                        known = clock.arrived.get((value, source, target))
                        if known is None:
                            time = self.problem.transfer_time(value, part, target)
                            known = end + self.problem.routes[source, target].signal_time
                            if time:
                                shape += (value, source, target, time)
                                costs.append(max(known, free))
                                continue
                        there = max(there, known)
                    costs.append(there)
        return tuple(shape), tuple(costs)
