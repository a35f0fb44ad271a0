"""Order the stages of a pipeline so that the caller's processor is first, where that costs little.

An input that the caller's processor reads as soon as it is given needs a single buffer. An input that another processor
reads needs a buffer for each input under way.
"""

from __future__ import annotations

from collections.abc import Mapping

from relay_passes.solvers.processors.loads import stage_order
from relay_passes.solvers.processors.problem import ProcessorProblem
from relay_passes.solvers.processors.search import FoundForms, evaluate

MOST_MORE = 0.02
"""Largest fraction of the interval that is given up."""


def caller_first(problem: ProcessorProblem, found: FoundForms) -> FoundForms:
    """Return the same stages on exchanged processors, the first processor first, or unchanged where that is slower."""
    edges = {(part.processor, target) for _, part, target in problem.crossings(found.forms)}
    order = stage_order(len(problem.names), edges)
    used = {part.processor for task, form in enumerate(found.forms) for part in problem.tasks[task].forms[form].parts}
    if order is None or len(used) < 2:
        return found
    stages = [processor for processor in order if processor in used]
    target = dict(zip(stages, sorted(stages), strict=True))
    forms = [_exchanged(problem, task, form, target) for task, form in enumerate(found.forms)]
    known = tuple(form for form in forms if form is not None)
    if len(known) < len(forms) or 0 not in used:
        return found
    moved = evaluate(problem, "throughput", known, found.sequence)
    return moved if moved.value <= (1 + MOST_MORE) * found.value else found


def _exchanged(problem: ProcessorProblem, task: int, form: int, target: Mapping[int, int]) -> int | None:
    """Return the fastest form of a task on the exchanged processors, or None."""
    forms = problem.tasks[task].forms
    wanted = sorted(target[part.processor] for part in forms[form].parts)
    found = [number for number, one in enumerate(forms) if sorted(part.processor for part in one.parts) == wanted]
    return min(found, key=lambda number: max(part.time for part in forms[number].parts), default=None)
