"""A bound of the makespan by windows: what each processor does between the begin of some tasks and the end of others.

Tasks that no part of begins before some time, and behind whose end at least some time is left, run in between. So do
transfers that the reading processor makes, of values that are not there before and are read no later. For each
processor the sum of these is at most that long: with the choice of forms left open, a constraint program for ortools'
CP-SAT that knows no lists, and is solved soon.
"""

from __future__ import annotations

from itertools import product

from relay_passes.solvers.processors.bounds import heads, tails
from relay_passes.solvers.processors.exact_forms import MOST, FormsProgram
from relay_passes.solvers.processors.problem import ProcessorProblem
from tvm_ext.core.errors import MissingTool

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("exact sharing among processors needs ortools: pip install 'tvm-ext[exact]'.") from None

EFFORT = 2.0
"""Deterministic time limit of the solver, about seconds."""
MOST_WINDOWS = 32
"""Begins, and ends, that are tried: of more, some evenly spread."""


def window_bound(problem: ProcessorProblem, bound: int) -> int:
    """A makespan that no assignment goes below, no lower than the one given."""
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
    solver.parameters.max_deterministic_time = EFFORT
    solver.parameters.linearization_level = 2
    solver.solve(model)
    return max(bound, round(solver.best_objective_bound))


def _spread(times: list[int]) -> list[int]:
    """Different times, ascending, no more than `MOST_WINDOWS`."""
    found = sorted({*times})
    return found[:: -(-len(found) // MOST_WINDOWS)]
