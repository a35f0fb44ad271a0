"""Figures of operators placed on back ends of TVM's virtual machine, as values for JSON, and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import NANOSECONDS
from relay_passes.processors.backend_work import BackendWork
from relay_passes.solvers.processors.assign import ProcessorAssignment
from relay_passes.solvers.processors.search import FoundForms
from tvm_ext.core.decisions.composites import CompositeKind, SourceNodes


def backend_report(
    operators: OperatorGraph,
    work: BackendWork,
    found: ProcessorAssignment,
    alone: Mapping[int, FoundForms],
    chosen: Sequence[int],
    *,
    measured: bool,
) -> dict[str, Any]:
    """Seconds of everything; of operators, those on each processor that can run them."""
    problem, names = work.problem, work.problem.names[:-1]
    moved = _crossing_nanoseconds(work, found.forms)
    steps = range(len(work.times))

    def times_on(processor: int) -> list[int]:
        return [work.times[step][processor] or 0 for step in steps if chosen[step] == processor]

    total = sum(sum(times_on(processor)) for processor in range(len(names))) + moved
    return {
        "note": "measured alone on this machine" if measured else "predicted, not measured",
        "total_seconds": _seconds(total),
        "crossing_seconds": _seconds(moved),
        "proved": found.proved,
        "single_processor_seconds": {
            name: _seconds(_total(work, alone[number].forms)) if number in alone else None
            for number, name in enumerate(names)
        },
        "processors": [
            {"name": name, "operators": len(times_on(number)), "seconds": _seconds(sum(times_on(number)))}
            for number, name in enumerate(names)
        ],
        "operators": [
            {
                "name": binding.value.op.name_hint,
                "nodes": list(SourceNodes.read(composite).nodes),
                "kind": CompositeKind.read(composite).kind,
                "processor": problem.names[chosen[step]],
                "seconds": {
                    name: None if time is None else _seconds(time)
                    for name, time in zip(names, work.times[step], strict=True)
                },
            }
            for step, ((binding, *_), composite) in enumerate(zip(operators.steps, operators.composites, strict=True))
        ],
    }


def _crossing_nanoseconds(work: BackendWork, forms: Sequence[int]) -> int:
    problem = work.problem
    return sum(problem.transfer_time(value, part, target) for value, part, target in problem.crossings(tuple(forms)))


def _total(work: BackendWork, forms: Sequence[int]) -> int:
    parts = [task.forms[form].parts[0] for task, form in zip(work.problem.tasks, forms, strict=True)]
    return sum(part.time for part in parts) + _crossing_nanoseconds(work, forms)


def _seconds(nanoseconds: int) -> float:
    return nanoseconds / NANOSECONDS
