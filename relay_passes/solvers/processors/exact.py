"""Forms, and for the makespan lists, as a constraint program for ortools' CP-SAT: the best, or a bound closer to it.

Processors run blocks: a task behind the transfers it begins with. The program lets a DMA take values in any order, and
the parts of a split stand in lists in any order; the lists it finds are timed as all others are, so its bound holds,
and where both are equal the answer is proved.
"""

from __future__ import annotations

from collections.abc import Mapping

from relay_passes.solvers.processors.exact_forms import FormsProgram
from relay_passes.solvers.processors.exact_times import add_times
from relay_passes.solvers.processors.problem import ProcessorProblem
from relay_passes.solvers.processors.search import FoundForms, evaluate
from tvm_ext.core.errors import MissingTool
from tvm_ext.core.objectives import Objective

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("exact sharing among processors needs ortools: pip install 'tvm-ext[exact]'.") from None

FAR_EFFORT = 3.0
"""Deterministic time limit of a search for the bound of a makespan."""
EFFORT: Mapping[Objective, float] = {"makespan": 1.0, "energy": 0.1, "throughput": 0.1}
"""Deterministic time limits of the solver, about seconds: they end a search without depending on the machine."""
LINEARIZATION: Mapping[Objective, int] = {"makespan": 0, "energy": 1, "throughput": 1}
"""Share of the program that a linear relaxation takes in: of lists none, since to it tasks overlap as if they were
halves, and it takes the time in which clauses are learned."""


def assign_exactly(
    problem: ProcessorProblem,
    objective: Objective,
    hint: FoundForms | None,
    bound: int,
    *,
    effort: float | None = None,
    from_below: bool = False,
) -> tuple[FoundForms | None, int]:
    """The best found, no worse than the hint, and a bound no lower than the one given.

    from_below: it tries to prove, or refute, values at the bound first. effort: by default `FAR_EFFORT` for that, else
    `EFFORT`.
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
