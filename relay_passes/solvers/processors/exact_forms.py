"""The choice of forms as a constraint program: what crosses follows from it, and so do energy and stages."""

from __future__ import annotations

from collections.abc import Iterator

from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem
from relay_passes.solvers.processors.search import FoundForms
from tvm_ext.core.errors import MissingTool
from tvm_ext.core.objectives import Objective

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("exact sharing among processors needs ortools: pip install 'tvm-ext[exact]'.") from None

MOST = 1 << 50
"""More than any energy or interval."""


class FormsProgram:
    """takes: whether a task takes a form, by (task, form). runs: whether some part of it is on a processor, by (task,
    processor)."""

    def __init__(self, problem: ProcessorProblem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        self.takes: dict[tuple[int, int], cp_model.IntVar] = {}
        self.runs: dict[tuple[int, int], cp_model.IntVar] = {}
        for number, task in enumerate(problem.tasks):
            chosen = [self.model.new_bool_var("") for _ in task.forms]
            self.takes.update({(number, form): it for form, it in enumerate(chosen)})
            self.model.add_exactly_one(chosen)
            for processor in sorted({part.processor for form in task.forms for part in form.parts}):
                runs = self.runs[number, processor] = self.model.new_bool_var("")
                self.model.add(
                    runs == sum(it for it, form in zip(chosen, task.forms, strict=True) if _on(form.parts, processor))
                )

    def parts_on(self, task: int, processor: int) -> Iterator[tuple[int, FormPart]]:
        """Forms of a task with a part on a processor."""
        for number, form in enumerate(self.problem.tasks[task].forms):
            yield from ((number, part) for part in form.parts if part.processor == processor)

    def ways(self) -> Iterator[tuple[int, int, int]]:
        """Value, source and target of every crossing that some choice of forms has."""
        for number, value in enumerate(self.problem.values):
            sources = [p for t, p in self.runs if t == value.maker]
            targets = sorted({p for t, p in self.runs if t in value.readers})
            yield from ((number, source, target) for source in sources for target in targets if source != target)

    def crossing(self, value: int, source: int, target: int, form: int | None = None) -> cp_model.IntVar:
        """Variable that is 1 where a value crosses; form: and where its maker has that form."""
        maker = self.problem.values[value].maker
        made = self.runs[maker, source] if form is None else self.takes[maker, form]
        crosses = self.model.new_bool_var("")
        for reader in self.problem.values[value].readers:
            if (reader, target) in self.runs:
                self.model.add_bool_or([~made, ~self.runs[reader, target], crosses])
        return crosses

    def add_objective(self, objective: Objective, bound: int, most: int | None) -> None:
        """Minimises the energy of a run, or the interval of a pipeline."""
        problem, model = self.problem, self.model
        costs: list[cp_model.LinearExprT] = []
        loads: dict[int | tuple[int, int], list[cp_model.LinearExprT]] = {}
        for number, task in enumerate(problem.tasks):
            for form, it in enumerate(task.forms):
                costs.append(self.takes[number, form] * sum(map(problem.energy_of, it.parts)))
                for part in it.parts:
                    loads.setdefault(part.processor, []).append(self.takes[number, form] * part.time)
        for value, source, target in self.ways():
            for form, part in self.parts_on(problem.values[value].maker, source):
                crosses = self.crossing(value, source, target, form)
                costs.append(crosses * problem.transfer_energy(value, part, target))
                carrier = (source, target) if problem.routes[source, target].has_dma else target
                loads.setdefault(carrier, []).append(crosses * problem.transfer_time(value, part, target))
        total = model.new_int_var(bound, most if most is not None else MOST, "")
        model.minimize(total)
        if objective == "energy":
            model.add(total >= sum(costs))
            return
        for load in loads.values():
            model.add(total >= sum(load))
        self._order_stages()

    def _order_stages(self) -> None:
        """Requires an order of the processors in which values only go forward."""
        count = len(self.problem.names)
        places = [self.model.new_int_var(0, count - 1, "") for _ in range(count)]
        for value, source, target in self.ways():
            crosses = self.crossing(value, source, target)
            self.model.add(places[source] < places[target]).only_enforce_if(crosses)

    def hint_forms(self, hint: FoundForms | None) -> None:
        """Starts from a candidate."""
        for (task, form), takes in self.takes.items():
            if hint:
                self.model.add_hint(takes, hint.forms[task] == form)

    def forms_in(self, solver: cp_model.CpSolver) -> tuple[int, ...]:
        """Forms that a solution chose."""
        return tuple(
            next(form for form in range(len(task.forms)) if solver.value(self.takes[number, form]))
            for number, task in enumerate(self.problem.tasks)
        )


def _on(parts: tuple[FormPart, ...], processor: int) -> bool:
    return any(part.processor == processor for part in parts)
