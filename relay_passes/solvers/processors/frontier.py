"""Assign tasks to processors by extending partial assignments, and drop dominated ones.

A label is a partial assignment. Its key determines which continuations are possible, and its costs say how soon, or how
cheaply, each may continue. Labels whose bound is no better than a known result are dropped. Beyond a width, the labels
with the largest bounds are dropped too; the least bound among these is a lower bound of all assignments. In networks
few values are alive at a time, so few labels differ in their keys, and the search often ends with a proof.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from relay_passes.solvers.processors.bounds import LARGE, load_bound, rests, weighted_times, weightings
from relay_passes.solvers.processors.loads import stage_order
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem
from relay_passes.solvers.processors.timing import Clock
from tvm_ext.core.objectives import Objective

Inner = TypeVar("Inner")


@dataclass(slots=True, eq=False)
class Label(Generic[Inner]):
    """A task and its form, appended to an earlier label.

    inner: the state of everything appended so far.
    promise: an estimate of the final value; among equal bounds, lower promises come first.
    """

    key: Hashable
    costs: tuple[int, ...]
    bound: int
    inner: Inner
    promise: int = 0
    task: int = -1
    form: int = -1
    before: Label[Inner] | None = field(default=None, repr=False)

    def choices(self) -> tuple[tuple[int, int], ...]:
        """Return the tasks in the order in which they were appended, with their forms."""
        found: list[tuple[int, int]] = []
        label = self
        while label.before is not None:
            found.append((label.task, label.form))
            label = label.before
        return tuple(reversed(found))


@dataclass(frozen=True, kw_only=True)
class Swept(Generic[Inner]):
    """The outcome of a sweep.

    best: the best complete label, if better than the known result.
    bound: of all assignments.
    labels: the number of labels created.
    """

    best: Label[Inner] | None
    bound: int
    labels: int


def sweep(
    start: Label[Inner],
    extend: Callable[[Label[Inner], int], tuple[Iterable[Label[Inner]], bool]],
    count: int,
    most: int,
    width: int,
) -> Swept[Inner]:
    """Append `count` tasks to labels with a bound below `most`, keeping at most `width` labels of each length.

    extend: returns the labels one task longer, for at most that many tasks, and whether these are all of them.
    """
    kept, dropped, made = [start], most, 0
    for _ in range(count):
        groups: dict[Hashable, list[Label[Inner]]] = {}
        for label in kept:
            extended, is_all = extend(label, width)
            if not is_all:
                dropped = min(dropped, label.bound)
            for new in extended:
                made += 1
                if new.bound < most:
                    _insert(groups.setdefault(new.key, []), new)
        labels = [label for group in groups.values() for label in group]
        labels.sort(key=lambda label: (label.bound, label.promise, sum(label.costs)))
        kept = labels[:width]
        if len(labels) > width:
            dropped = min(dropped, labels[width].bound)
    best = kept[0] if kept else None
    return Swept(best=best, bound=min(dropped, best.bound if best else most), labels=made)


def _insert(group: list[Label[Inner]], new: Label[Inner]) -> None:
    """Add a label unless another label with its key is nowhere worse, and remove the labels that are nowhere better."""
    costs = new.costs
    for label in group:
        if all(map(int.__le__, label.costs, costs)):
            return
    group[:] = [label for label in group if not all(map(int.__le__, costs, label.costs))]
    group.append(new)


class _Forms(NamedTuple):
    """The state of a label for loads.

    forms: of tasks that are still read.
    crossed: (value, source, target) of values that are still read.
    edges: the routes in use.
    """

    forms: tuple[tuple[int, int], ...]
    crossed: frozenset[tuple[int, int, int]]
    edges: frozenset[tuple[int, int]]


class LoadLabels:
    """Labels for energy, or for loads of processors and DMAs. `extend` gives the next task every form."""

    def __init__(self, problem: ProcessorProblem, objective: Objective) -> None:
        self.problem, self.is_energy = problem, objective == "energy"
        energies = [min(sum(map(problem.energy_of, form.parts)) for form in task.forms) for task in problem.tasks]
        self.energy_left = _sums_behind(energies)
        self.weights = list(weightings(problem))
        self.times_left = [_sums_behind(weighted_times(problem, weights)) for weights in self.weights]
        carriers = [*range(len(problem.names)), *(way for way, route in problem.routes.items() if route.has_dma)]
        self.places = {carrier: place for place, carrier in enumerate(carriers)}
        self.last_read = [max(followers, default=task) for task, followers in enumerate(problem.followers)]
        self.last_value = [max(value.readers, default=value.maker) for value in problem.values]

    def start(self, bound: int) -> Label[_Forms]:
        """Return the label in which no task has a form."""
        costs = (0,) if self.is_energy else (0,) * len(self.places)
        return Label(key=0, costs=costs, bound=bound, inner=_Forms((), frozenset(), frozenset()))

    def extend(self, label: Label[_Forms], _: int) -> tuple[Iterator[Label[_Forms]], bool]:
        """Return all labels one task longer, without those in which the stages would have no order."""
        task = label.task + 1
        labels = (self._append(label, task, form) for form in range(len(self.problem.tasks[task].forms)))
        return (new for new in labels if new is not None), True

    def _append(self, label: Label[_Forms], task: int, form: int) -> Label[_Forms] | None:
        problem, costs, before = self.problem, list(label.costs), label.inner
        parts = problem.tasks[task].forms[form].parts
        for part in parts:
            costs[0 if self.is_energy else part.processor] += problem.energy_of(part) if self.is_energy else part.time
        crossed, edges = set(before.crossed), before.edges
        for value, source, target in self._new_crossings(before, task, parts):
            way = (source.processor, target)
            if self.is_energy:
                costs[0] += problem.transfer_energy(value, source, target)
            else:
                carrier = way if problem.routes[way].has_dma else target
                costs[self.places[carrier]] += problem.transfer_time(value, source, target)
                edges |= {way}
            crossed.add((value, *way))
        if edges != before.edges and stage_order(len(problem.names), edges) is None:
            return None
        forms = tuple(it for it in (*before.forms, (task, form)) if self.last_read[it[0]] > task)
        inner = _Forms(forms, frozenset(it for it in crossed if self.last_value[it[0]] > task), edges)
        return Label(
            key=inner, costs=tuple(costs), bound=max(label.bound, self._bound(costs, task + 1)), inner=inner,
            task=task, form=form, before=label,
        )  # fmt: skip

    def _new_crossings(
        self, before: _Forms, task: int, parts: tuple[FormPart, ...]
    ) -> Iterator[tuple[int, FormPart, int]]:
        forms = dict(before.forms)
        for value, maker in self.problem.read_from[task]:
            for source in self.problem.tasks[maker].forms[forms[maker]].parts:
                for part in parts:
                    way = (source.processor, part.processor)
                    if way[0] != way[1] and (value, *way) not in before.crossed:
                        yield value, source, part.processor

    def _bound(self, costs: list[int], begin: int) -> int:
        if self.is_energy:
            return costs[0] + self.energy_left[begin]
        return max(
            max(costs),
            *(
                load_bound(w, left[begin : begin + 1], costs)
                for w, left in zip(self.weights, self.times_left, strict=True)
            ),
        )


def _sums_behind(numbers: list[int]) -> list[int]:
    """Return the sum of the numbers from each index on."""
    return [*reversed([0, *accumulate(reversed(numbers))])]


WEIGHTINGS = 3
"""Number of weightings by which loads are bounded.

The weightings with the best bounds for the whole problem are used.
"""


@dataclass(slots=True)
class _Lists:
    """The state of a label for makespans.

    done, ready: tasks, as bits and as a list.
    left: weighted times of the tasks that are not done.
    """

    clock: Clock
    done: int
    ready: list[int]
    left: tuple[int, ...]


class TimeLabels:
    """Labels for makespans. `extend` appends every task that is ready, in every form."""

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
        """Return the label with empty schedules."""
        ready = sorted((task for task, needs in enumerate(self.needs) if not needs), key=self._urgency)
        left = tuple(map(sum, zip(*self.times, strict=True)))
        return Label(key=0, costs=(), bound=bound, inner=_Lists(Clock(self.problem), 0, ready, left))

    def extend(self, label: Label[_Lists], most_tasks: int) -> tuple[Iterator[Label[_Lists]], bool]:
        """Return labels one task longer, and whether these are all.

        Only the ready tasks with the longest paths to the end are appended.
        """
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
        """Return a lower bound of the end of the run for a ready task, given when the processors are free."""
        least = LARGE
        for lengths in self.lengths[task]:
            end = 0
            for processor, length in lengths:
                if free[processor] + length > end:
                    end = free[processor] + length
            least = min(least, end)
        return least

    def _forget(self, clock: Clock, task: int, done: int) -> None:
        """Remove everything that no task reads any more."""
        for maker in (*self.problem.makers[task], task):
            if not self.read_by[maker] & ~done:
                del clock.ends[maker]
        for key in [key for key in clock.arrived if not self.readers[key[0]] & ~done]:
            del clock.arrived[key]

    def _future(self, clock: Clock, done: int) -> tuple[Hashable, tuple[int, ...]]:
        """Return the key and the costs of a label.

        The key consists of the done tasks and of the pieces still to transfer. The costs are the times at which
        processors are free and values are available.
        """
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
