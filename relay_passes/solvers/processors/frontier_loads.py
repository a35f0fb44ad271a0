"""Labels for energy and for the interval of a pipeline: forms of the tasks before some task.

The future depends on the forms of tasks whose values are still to be read, on what of these has crossed already, and
for a pipeline on which processors stand before which.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from relay_passes.solvers.processors.bounds import load_bound, weighted_times, weightings
from relay_passes.solvers.processors.frontier import Label
from relay_passes.solvers.processors.loads import stage_order
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem
from tvm_ext.core.objectives import Objective


class _Forms(NamedTuple):
    """forms: of tasks that are still read. crossed: (value, source, target) of values that are. edges: ways taken."""

    forms: tuple[tuple[int, int], ...]
    crossed: frozenset[tuple[int, int, int]]
    edges: frozenset[tuple[int, int]]


class LoadLabels:
    """Makes labels; `extend` gives the next task every form. Costs: the energy, or loads of processors and DMAs."""

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
        """No task has a form."""
        costs = (0,) if self.is_energy else (0,) * len(self.places)
        return Label(key=0, costs=costs, bound=bound, inner=_Forms((), frozenset(), frozenset()))

    def extend(self, label: Label[_Forms], _: int) -> tuple[Iterator[Label[_Forms]], bool]:
        """Labels one task on, all there are; none where stages would have no order."""
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
    """Sum of the numbers from each place on."""
    return [*reversed([0, *accumulate(reversed(numbers))])]
