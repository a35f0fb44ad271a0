"""Search the processor of each task, and report the result beside that of a single processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relay_passes.analysis.processor_costs import NANOSECONDS, ProcessorCosts
from relay_passes.processors.shared_work import SharedWork
from relay_passes.solvers.processors.assign import ProcessorAssignment, answer, assign_processors
from relay_passes.solvers.processors.bounds import LARGE
from relay_passes.solvers.processors.caller_first import caller_first
from relay_passes.solvers.processors.driven import Driving, driven, driven_makespan
from relay_passes.solvers.processors.groups import (
    Groups,
    assign_groups,
    group_by_branches,
    group_by_support,
    group_by_volume,
    group_kept,
)
from relay_passes.solvers.processors.loads import energy_of, interval_of
from relay_passes.solvers.processors.search import FoundForms, evaluate
from relay_passes.solvers.processors.timing import makespan_of
from tvm_ext.core.objectives import Grouping, Objective

FEMTO_TO_MICROJOULES = 1e-9


@dataclass(frozen=True, kw_only=True)
class ChosenProcessors:
    """The outcome of the search.

    found: the best assignment.
    alone: the best single processor, None where no processor can run all tasks.
    """

    found: ProcessorAssignment
    alone: FoundForms | None
    alone_on: str


def choose_processors(
    work: SharedWork,
    objective: Objective,
    grouping: Grouping,
    fast_bytes: int,
    driving: Driving | None = None,
    *,
    in_order: bool = False,
) -> ChosenProcessors | None:
    """Return the best assignment found, or None where there is none. It is never worse than a single processor.

    fast_bytes: for grouping by volume, the most bytes that the weights and values of a group may take.
    driving: the accelerators, if any.
    in_order: whether operators keep their order.
    """
    problem = work.problem
    groups = _groups(work, grouping, fast_bytes)
    found = assign_groups(problem, groups, objective) if groups else assign_processors(problem, objective)
    if found and in_order:
        found = replace(found, sequence=tuple(range(len(problem.tasks))))
    if found and driving and objective == "makespan":
        found = driven(problem, driving, found, in_order=in_order)
    alone = [(candidate, name) for name, candidate in _alone(work, objective) if candidate.value < LARGE]
    best = min(alone, key=lambda pair: pair[0].key, default=None)
    if best and (found is None or best[0].value < found.value):
        found = answer(problem, objective, best[0], found.bound if found else 0)
    if found is None:
        return None
    if objective == "throughput":
        now = FoundForms(forms=found.forms, sequence=found.sequence, value=found.value, beside=0)
        found = answer(problem, objective, caller_first(problem, now), found.bound)
    return ChosenProcessors(found=found, alone=best[0] if best else None, alone_on=best[1] if best else "")


def _groups(work: SharedWork, grouping: Grouping, fast_bytes: int) -> Groups | None:
    problem, together = work.problem, work.together
    if grouping == "support":
        return group_by_support(problem, together)
    if grouping == "branches":
        return group_by_branches(problem, together)
    if grouping == "volume":
        return group_by_volume(problem, fast_bytes, together)
    return group_kept(problem, together) if together else None


def _alone(work: SharedWork, objective: Objective) -> list[tuple[str, FoundForms]]:
    """Return all work on each processor that can run it, started and ended on the first processor."""
    problem, order = work.problem, tuple(range(len(work.problem.tasks)))
    found: list[tuple[str, FoundForms]] = []
    for processor, name in enumerate(problem.names):
        forms = [problem.whole_form(task, processor if work.unit_of(task) else 0) for task in order]
        if None not in forms:
            chosen = tuple(form for form in forms if form is not None)
            found.append((name, evaluate(problem, objective, chosen, order)))
    return found


def placement_report(
    work: SharedWork,
    chosen: ChosenProcessors,
    costs: Sequence[ProcessorCosts],
    objective: Objective,
    grouping: Grouping,
    driving: Driving | None = None,
    copies: int = 0,
) -> dict[str, Any]:
    """Return the outcome for report.json. Cycles are those of the first processor's clock.

    copies: nanoseconds in which processors copy rows of each other, which the search does not know.
    """
    problem, found = work.problem, chosen.found
    clock = costs[0].processor.clock_hz
    knows_power = all(cost.processor.watts > 0 for cost in costs)
    used = [(task, found.forms[task]) for task in range(len(problem.tasks)) if work.unit_of(task)]

    def cycles(nanoseconds: int) -> int:
        return round(nanoseconds * clock / NANOSECONDS)

    def figures(forms: Sequence[int], sequence: Sequence[int]) -> dict[str, Any]:
        interval = interval_of(problem, forms) if objective == "throughput" else None
        return {
            "makespan_cycles": cycles(
                driven_makespan(problem, driving, forms, sequence)
                if driving
                else makespan_of(problem, forms, sequence)[0]
            ),
            "interval_cycles": None if interval is None else cycles(interval),
            "energy_uj": round(energy_of(problem, forms) * FEMTO_TO_MICROJOULES, 6) if knows_power else None,
        }

    alone = chosen.alone
    return {
        "note": "predicted by the kernels' cost model, not measured",
        "objective": objective,
        "grouping": grouping,
        "clock_hz": clock,
        **_delayed(figures(found.forms, found.sequence), cycles(copies)),
        "copy_cycles": cycles(copies),
        "bound": _bound(found, cycles),
        "gap": round(found.value / found.bound - 1, 6) if found.bound > 0 else None,
        "single_processor": {"name": chosen.alone_on, **figures(alone.forms, alone.sequence)} if alone else None,
        "split_operators": sum(len(work.unit_of(task)) for task, form in used if (task, form) in work.parts),
        "processors": [
            {
                "name": name,
                "operators": sum(
                    len(work.unit_of(task))
                    for task, form in used
                    if [part.processor for part in problem.tasks[task].forms[form].parts] == [processor]
                ),
                "parts": sum(
                    part.processor == processor
                    for one in used
                    if one in work.parts
                    for part in problem.tasks[one[0]].forms[one[1]].parts
                ),
                "busy_cycles": cycles(
                    sum(
                        part.time
                        for task, form in used
                        for part in problem.tasks[task].forms[form].parts
                        if part.processor == processor
                    )
                ),
            }
            for processor, name in enumerate(problem.names)
        ],
    }


def _delayed(figures: dict[str, Any], cycles: int) -> dict[str, Any]:
    """Return the outcome with cycles that every run, and every interval of a pipeline, takes in addition."""
    more = {key: figures[key] + cycles for key in ("makespan_cycles", "interval_cycles") if figures[key] is not None}
    return {**figures, **more}


def _bound(found: ProcessorAssignment, cycles: Callable[[int], int]) -> dict[str, Any]:
    """Return the proved lower bound of all assignments, in the unit of the objective."""
    if found.objective == "energy":
        return {"energy_uj": round(found.bound * FEMTO_TO_MICROJOULES, 6)}
    return {"interval_cycles" if found.objective == "throughput" else "makespan_cycles": cycles(found.bound)}
