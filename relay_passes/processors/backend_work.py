"""Operators as tasks of TVM's back ends: their memories, their times, and the report of a placement.

A back end that shares the memory of the tensors receives a value for free. A back end with a memory of its own receives
a value over the link between both memories. A run of operators in our C is a single call, so each value that enters the
run from another processor pays for a call, while every operator in TVM's own code already includes its own call. The
caller, who brings inputs and takes results, is a processor that runs nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import NANOSECONDS
from relay_passes.processors.tvm_costs import OperatorCosts
from relay_passes.solvers.processors.assign import ProcessorAssignment, answer, assign_processors
from relay_passes.solvers.processors.bounds import LARGE
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem, Route, Task, TaskForm, TaskValue
from relay_passes.solvers.processors.search import FoundForms, evaluate
from tvm_ext.core.decisions.composites import CompositeKind, SourceNodes
from tvm_ext.core.errors import BadPlatform, UnsupportedModel
from tvm_ext.core.platform import Platform, Processor

CALLER = "caller"
MICROWATTS = 1_000_000
SEQUENTIAL = "energy"
"""The objective of the search, in which times add up as energies do. The power of its processor weights each time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BackendWork:
    """Operators as a problem of assignment to back ends.

    times: of each operator on each processor, None where the processor cannot run it. Task 0 brings the inputs, the
    last task takes the results, and task `step + 1` is an operator.
    """

    problem: ProcessorProblem
    times: tuple[tuple[int | None, ...], ...]

    def assigned(self) -> tuple[ProcessorAssignment, dict[int, FoundForms]]:
        """Return the least total found, and the totals of single processors that can run all operators.

        The result is never worse than the best single processor.
        """
        alone = {processor: found for processor in range(len(self.problem.names) - 1) if (found := self._on(processor))}
        found = assign_processors(self.problem, SEQUENTIAL)
        assert found is not None, "every task has a form"
        best = min(alone.values(), key=lambda one: one.key, default=None)
        if best and best.value < found.value:
            found = answer(self.problem, SEQUENTIAL, best, found.bound)
        return found, alone

    def _on(self, processor: int) -> FoundForms | None:
        caller, last = len(self.problem.names) - 1, len(self.problem.tasks) - 1
        forms = [self.problem.whole_form(t, caller if t in (0, last) else processor) for t in range(last + 1)]
        if None in forms:
            return None
        chosen = tuple(form for form in forms if form is not None)
        found = evaluate(self.problem, SEQUENTIAL, chosen, tuple(range(last + 1)))
        return found if found.value < LARGE else None


def backend_work(
    operators: OperatorGraph,
    costs: Sequence[OperatorCosts],
    platform: Platform,
    call_seconds: float,
    forced: Mapping[int, int],
    *,
    by_energy: bool,
) -> BackendWork:
    """Return the problem of placing operators on back ends.

    call_seconds: time of a call of our C.
    forced: the processor of each operator that the user has placed.

    Raises UnsupportedModel for an operator that no processor can run, BadPlatform for a memory that no link reaches.
    """
    names = [cost.processor.name for cost in costs]
    times: list[tuple[int | None, ...]] = []
    for step, composite in enumerate(operators.composites):
        assert composite is not None, "main has composites only"
        own = tuple(cost.nanoseconds(composite) for cost in costs)
        if own.count(None) == len(own):
            name = operators.steps[step][0].value.op.name_hint
            raise UnsupportedModel(
                f'{name}: runs on none of {", ".join(names)}; give {platform.name} a processor of kind = "tvm" with '
                'target = "llvm", which takes what TVM itself can compile.'
            )
        times.append(own)
    caller = len(costs)
    powers = [max(1, round(cost.processor.watts * MICROWATTS)) if by_energy else 1 for cost in costs]
    edge = Task(forms=(TaskForm(parts=(FormPart(processor=caller, time=0),)),))
    tasks = [Task(forms=_forms(own, forced.get(step))) for step, own in enumerate(times)]
    problem = ProcessorProblem(
        names=(*names, CALLER), powers=(*powers, 1), tasks=(edge, *tasks, edge), values=_values(operators),
        routes=_routes([cost.processor for cost in costs], platform, call_seconds),
    )  # fmt: skip
    return BackendWork(problem=problem, times=tuple(times))


def _forms(times: Sequence[int | None], forced: int | None) -> tuple[TaskForm, ...]:
    able = [(p, time) for p, time in enumerate(times) if time is not None and forced in (None, p)]
    return tuple(TaskForm(parts=(FormPart(processor=p, time=time),)) for p, time in able)


def _values(operators: OperatorGraph) -> tuple[TaskValue, ...]:
    """Return the values that cross between tasks: inputs, results, and all values between operators."""
    graph = operators.graph()
    last = len(graph.nodes) + 1
    maker = {value: step + 1 for step, node in enumerate(graph.nodes) for value in node.writes}
    readers: dict[int, dict[int, None]] = {}
    for step, node in enumerate(graph.nodes):
        for value in node.reads:
            readers.setdefault(value, {})[step + 1] = None
    for value in sorted(graph.outputs):
        readers.setdefault(value, {})[last] = None
    return tuple(
        TaskValue(maker=maker.get(value, 0), readers=tuple(found), size_bytes=graph.sizes[value])
        for value, found in sorted(readers.items())
    )


def _routes(processors: Sequence[Processor], platform: Platform, call_seconds: float) -> dict[tuple[int, int], Route]:
    """Return the routes between all pairs of processors. The caller uses the memory of the tensors."""
    memories = [*(memory_of(processor, platform) for processor in processors), platform.activations]
    call = ceil(call_seconds * NANOSECONDS)
    routes: dict[tuple[int, int], Route] = {}
    for source, one in enumerate(memories):
        for target, other in enumerate(memories):
            is_ours = target < len(processors) and processors[target].kind == "core" and source < len(processors)
            start, each = moving(platform, one, other)
            time = start + (call if is_ours else 0)
            routes[source, target] = Route(transfer_time=time, time_per_byte=each)
    return routes


def backend_report(
    operators: OperatorGraph,
    work: BackendWork,
    found: ProcessorAssignment,
    alone: Mapping[int, FoundForms],
    chosen: Sequence[int],
    *,
    measured: bool,
) -> dict[str, Any]:
    """Return the report in seconds, for each operator also on every processor that can run it."""
    problem, names = work.problem, work.problem.names[:-1]
    moved = _crossing_nanoseconds(work, found.forms)
    steps = range(len(work.times))

    def times_on(processor: int) -> list[int]:
        return [work.times[step][processor] or 0 for step in steps if chosen[step] == processor]

    total = sum(sum(times_on(processor)) for processor in range(len(names))) + moved
    return {
        "note": "each operator measured alone on this machine" if measured else "predicted, not measured",
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


def memory_of(processor: Processor, platform: Platform) -> str:
    """Return the memory that holds the tensors of a processor: the shared memory, or a memory of its own."""
    own = [memory.name for memory in platform.memories if platform.reached_by(processor.name, memory.name)]
    return platform.activations if not own or platform.activations in own else own[0]


def moving(platform: Platform, source: str, target: str) -> tuple[int, float]:
    """Return the nanoseconds of a transfer's start, and of each byte.

    Cycles of links are cycles of the first processor. Raises BadPlatform where no link joins the two memories.
    """
    if source == target:
        return 0, 0.0
    if platform.activations not in (
        source,
        target,
    ):  # by way of the shared memory
        first, second = moving(platform, source, platform.activations), moving(platform, platform.activations, target)
        return first[0] + second[0], first[1] + second[1]
    link = platform.link_between(source, target) or platform.link_between(target, source)
    if link is None:
        raise BadPlatform(
            f"{platform.name}: no way joins {source} and {target}, which TVM copies tensors between; add a [[links]] "
            "table with its rate."
        )
    cycle = NANOSECONDS / platform.processor.clock_hz
    return ceil(link.latency_cycles * cycle), cycle / link.bytes_per_cycle
