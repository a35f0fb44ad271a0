"""Assign tasks to processors by a constraint program over forms, times and windows.

Processors run blocks: a task after the transfers that it begins with. The program lets a DMA transfer values in any
order, and lets the parts of a split task stand in schedules in any order. It is thus a relaxation, so its bound holds.
The schedules that it finds are timed like all others, and where value and bound are equal the result is proved optimal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from relay_passes.solvers.processors.bounds import heads, tails
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem
from relay_passes.solvers.processors.search import FoundForms, evaluate
from relay_passes.solvers.processors.timing import listed_tasks
from tvm_ext.core.errors import MissingTool
from tvm_ext.core.objectives import Objective

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("optimal per-core schedules need ortools: pip install 'tvm-ext[exact]'.") from None

FAR_EFFORT = 3.0
"""Deterministic time limit of a search for the bound of a makespan."""
EFFORT: Mapping[Objective, float] = {"makespan": 1.0, "energy": 0.1, "throughput": 0.1}
"""Deterministic time limits of the solver, in about seconds, so that the result does not depend on the machine."""
LINEARIZATION: Mapping[Objective, int] = {"makespan": 0, "energy": 1, "throughput": 1}
"""Linearization level of the solver.

Makespans use none: a linear relaxation lets tasks overlap as if they were halves, and takes the time in which clauses
are learned.
"""


def assign_exactly(
    problem: ProcessorProblem,
    objective: Objective,
    hint: FoundForms | None,
    bound: int,
    *,
    effort: float | None = None,
    from_below: bool = False,
) -> tuple[FoundForms | None, int]:
    """Return the best assignment found, no worse than the hint, and a bound no lower than the given bound.

    from_below: whether to prove or refute values at the bound first.
    effort: by default `FAR_EFFORT` if from_below, else `EFFORT`.
    """
    if effort is None:
        effort = FAR_EFFORT if from_below else EFFORT[objective]
    program = FormsProgram(problem)
    model, most = program.model, hint.value if hint else None
    if objective == "makespan":
        assert hint
        begins = add_times(program, hint, bound)
    else:
        begins = None
        program.add_objective(objective, bound, most)
    program.hint_forms(hint)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    solver.parameters.use_objective_lb_search = from_below
    solver.parameters.linearization_level = LINEARIZATION[objective]
    solver.parameters.cp_model_probing_level = 0
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return hint, bound
    bound = max(bound, round(solver.best_objective_bound))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return hint, bound
    forms = program.forms_in(solver)
    sequence = tuple(range(len(problem.tasks)))
    if begins is not None:
        sequence = tuple(
            sorted(
                sequence,
                key=lambda t: (
                    max(solver.value(begins[t, p.processor]) for p in problem.tasks[t].forms[forms[t]].parts),
                    t,
                ),
            )
        )
    found = evaluate(problem, objective, forms, sequence)
    return (min(hint, found, key=lambda one: one.key) if hint else found), bound


try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("optimal per-core schedules need ortools: pip install 'tvm-ext[exact]'.") from None

MOST = 1 << 50
"""Larger than any energy or interval."""


class FormsProgram:
    """Variables for the forms of tasks.

    takes: whether a task takes a form, by (task, form).
    runs: whether some part of a task is on a processor, by (task, processor).
    """

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
        """Yield the forms of a task with a part on a processor."""
        for number, form in enumerate(self.problem.tasks[task].forms):
            yield from ((number, part) for part in form.parts if part.processor == processor)

    def ways(self) -> Iterator[tuple[int, int, int]]:
        """Yield value, source and target of every crossing that some choice of forms has."""
        for number, value in enumerate(self.problem.values):
            sources = [p for t, p in self.runs if t == value.maker]
            targets = sorted({p for t, p in self.runs if t in value.readers})
            yield from ((number, source, target) for source in sources for target in targets if source != target)

    def crossing(self, value: int, source: int, target: int, form: int | None = None) -> cp_model.IntVar:
        """Return a variable that is 1 where a value crosses.

        form: count only crossings where the producer has that form.
        """
        maker = self.problem.values[value].maker
        made = self.runs[maker, source] if form is None else self.takes[maker, form]
        crosses = self.model.new_bool_var("")
        for reader in self.problem.values[value].readers:
            if (reader, target) in self.runs:
                self.model.add_bool_or([~made, ~self.runs[reader, target], crosses])
        return crosses

    def add_objective(self, objective: Objective, bound: int, most: int | None) -> None:
        """Minimize the energy of a run, or the interval of a pipeline."""
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
        """Require an order of the processors in which values only move forward."""
        count = len(self.problem.names)
        places = [self.model.new_int_var(0, count - 1, "") for _ in range(count)]
        for value, source, target in self.ways():
            crosses = self.crossing(value, source, target)
            self.model.add(places[source] < places[target]).only_enforce_if(crosses)

    def hint_forms(self, hint: FoundForms | None) -> None:
        """Start the solver from a candidate."""
        for (task, form), takes in self.takes.items():
            if hint:
                self.model.add_hint(takes, hint.forms[task] == form)

    def forms_in(self, solver: cp_model.CpSolver) -> tuple[int, ...]:
        """Return the forms that a solution chose."""
        return tuple(
            next(form for form in range(len(task.forms)) if solver.value(self.takes[number, form]))
            for number, task in enumerate(self.problem.tasks)
        )


def _on(parts: tuple[FormPart, ...], processor: int) -> bool:
    return any(part.processor == processor for part in parts)


try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("optimal per-core schedules need ortools: pip install 'tvm-ext[exact]'.") from None

Variables = dict[tuple[int, int], cp_model.IntVar]
"""Variables by (task, processor)."""


def add_times(program: FormsProgram, hint: FoundForms, bound: int) -> Variables:
    """Minimize the makespan, and return the variables of the starts of tasks."""
    return _Times(program, hint, bound).begins


class _Times:
    """Variables for times.

    blocks: where a task's transfers start.
    begins, ends: of the task itself.
    """

    def __init__(self, program: FormsProgram, hint: FoundForms, bound: int) -> None:
        self.program, self.problem, self.model, self.most = program, program.problem, program.model, hint.value
        head, (_, behind) = heads(self.problem), tails(self.problem)
        self.total = self.model.new_int_var(bound, self.most, "")
        self.blocks, self.begins, self.ends = Variables(), Variables(), Variables()
        on: list[list[cp_model.IntervalVar]] = [[] for _ in self.problem.names]
        for (task, processor), runs in program.runs.items():
            key = (task, processor)
            self.blocks[key], self.begins[key], self.ends[key] = (
                self.model.new_int_var(least, self.most, "") for least in (0, head[task], head[task])
            )
            time = sum(program.takes[task, form] * part.time for form, part in program.parts_on(*key))
            self.model.add(self.ends[key] == self.begins[key] + time)
            self.model.add(self.blocks[key] <= self.begins[key])
            self.model.add(self.ends[key] + behind[task] <= self.total).only_enforce_if(runs)
            size = self.model.new_int_var(0, self.most, "")
            on[processor].append(self.model.new_optional_interval_var(self.blocks[key], size, self.ends[key], runs, ""))
        for processor, intervals in enumerate(on):
            self.model.add_no_overlap(intervals)
            busy = [
                program.takes[t, form] * part.time
                for t, p in program.runs if p == processor for form, part in program.parts_on(t, p)
            ]  # fmt: skip
            self.model.add(sum(busy) <= self.total)
        self.carried: dict[tuple[str, int, int], list[cp_model.IntervalVar]] = {}
        for it in self.problem.values:
            for processor in range(len(self.problem.names)):
                self._stays(it.maker, it.readers, processor)
        for value, source, target in program.ways():
            self._crosses(value, source, target)
        for intervals in self.carried.values():
            self.model.add_no_overlap(intervals)
        self.model.minimize(self.total)
        self._hint(hint)

    def _stays(self, maker: int, readers: tuple[int, ...], processor: int) -> None:
        """Let a reader on the producer's processor wait for the producer."""
        made = self.program.runs.get((maker, processor))
        for reader in readers:
            runs = self.program.runs.get((reader, processor))
            if made is not None and runs is not None:
                early, late = self.ends[maker, processor], self.blocks[reader, processor]
                self.model.add(early <= late).only_enforce_if(made, runs)

    def _crosses(self, value: int, source: int, target: int) -> None:
        """Let a reader on another processor wait for the signal and the transfer, which a single reader performs."""
        problem, model, runs = self.problem, self.model, self.program.runs
        maker, route = problem.values[value].maker, problem.routes[source, target]
        made, end = runs[maker, source], self.ends[maker, source]
        readers = [reader for reader in dict.fromkeys(problem.values[value].readers) if (reader, target) in runs]
        times = {
            form: problem.transfer_time(value, part, target) for form, part in self.program.parts_on(maker, source)
        }
        if not any(times.values()):
            for reader in readers:
                begin = self.begins[reader, target]
                model.add(end + route.signal_time <= begin).only_enforce_if(made, runs[reader, target])
            return
        crosses = self.program.crossing(value, source, target)
        model.add_implication(crosses, made)
        time = sum(self.program.takes[maker, form] * it for form, it in times.items())
        began, ended = model.new_int_var(0, self.most, ""), model.new_int_var(0, self.most, "")
        size = model.new_int_var(0, max(times.values()), "")
        model.add(size == time).only_enforce_if(crosses)
        interval = model.new_optional_interval_var(began, size, ended, crosses, "")
        before, after = (0, route.signal_time) if route.has_dma else (route.signal_time, 0)
        model.add(began >= end + before).only_enforce_if(crosses)
        for reader in readers:
            model.add(ended + after <= self.begins[reader, target]).only_enforce_if(made, runs[reader, target])
        if route.has_dma:
            self.carried.setdefault(("dma", source, target), []).append(interval)
            return
        self.carried.setdefault(("reader", target, target), []).append(interval)
        carries = [model.new_bool_var("") for _ in readers]
        model.add(sum(carries) == crosses)
        for reader, carrier in zip(readers, carries, strict=True):
            model.add_implication(carrier, runs[reader, target])
            model.add(began >= self.blocks[reader, target]).only_enforce_if(carrier)
            model.add(ended <= self.begins[reader, target]).only_enforce_if(carrier)

    def _hint(self, hint: FoundForms) -> None:
        for processor, listed in enumerate(listed_tasks(self.problem, hint.forms, hint.sequence)):
            for one in listed:
                self.model.add_hint(self.begins[one.task, processor], one.begin)
                self.model.add_hint(self.ends[one.task, processor], one.end)


try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("optimal per-core schedules need ortools: pip install 'tvm-ext[exact]'.") from None

WINDOW_EFFORT = 2.0
"""Deterministic time limit of the solver, in about seconds."""
MOST_WINDOWS = 32
"""Number of starts, and of ends, that are tried. Of more, evenly spread ones are taken."""


def window_bound(problem: ProcessorProblem, bound: int) -> int:
    """Return a makespan that no assignment undercuts, no lower than the given bound."""
    program = FormsProgram(problem)
    model, head, (_, behind) = program.model, heads(problem), tails(problem)
    shortest = [min(part.time for form in task.forms for part in form.parts) for task in problem.tasks]
    total = model.new_int_var(bound, MOST, "")
    loads: list[tuple[int, int, int, cp_model.LinearExprT]] = [
        (processor, head[task], behind[task], program.takes[task, form] * part.time)
        for task, processor in program.runs
        for form, part in program.parts_on(task, processor)
    ]
    for number, source, target in program.ways():
        value = problem.values[number]
        if problem.routes[source, target].has_dma:
            continue
        begin = head[value.maker] + shortest[value.maker]
        left = min(behind[reader] + shortest[reader] for reader in value.readers)
        for form, part in program.parts_on(value.maker, source):
            if time := problem.transfer_time(number, part, target):
                loads.append((target, begin, left, program.crossing(number, source, target, form) * time))
    for first, last in product(_spread(head), _spread(behind)):
        for processor in range(len(problem.names)):
            inside = [load for on, begin, left, load in loads if on == processor and begin >= first and left >= last]
            if inside:
                model.add(total >= first + last + sum(inside))
    model.minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = WINDOW_EFFORT
    solver.parameters.linearization_level = 2
    solver.solve(model)
    return max(bound, round(solver.best_objective_bound))


def _spread(times: list[int]) -> list[int]:
    """Return different times, ascending, at most `MOST_WINDOWS` of them."""
    found = sorted({*times})
    return found[:: -(-len(found) // MOST_WINDOWS)]
