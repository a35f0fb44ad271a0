"""Operators as tasks for back ends that TVM's virtual machine calls in turn: the least total time, or energy.

A back end that shares the memory of the tensors gets a value for nothing; one with a memory of its own by the link that
joins the two. A run of operators in our C is one call, so what comes to it from elsewhere pays for a call, while every
operator of TVM's own has paid for its own. The caller, who brings inputs and takes results, is a processor that runs
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import NANOSECONDS
from relay_passes.processors.memory_ways import memory_of, moving
from relay_passes.processors.tvm_costs import OperatorCosts
from relay_passes.solvers.processors.assign import ProcessorAssignment, answer, assign_processors
from relay_passes.solvers.processors.bounds import LARGE
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem, Route, Task, TaskForm, TaskValue
from relay_passes.solvers.processors.search import FoundForms, evaluate
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.platform import Platform, Processor

CALLER = "caller"
MICROWATTS = 1_000_000
SEQUENTIAL = "energy"
"""The aim of the search: times that add up, as energies do; each counts by the power of its processor."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BackendWork:
    """times: of each operator on each processor, None where it cannot run it. Task 0 brings the inputs, the last one
    takes the results, task `step + 1` is an operator."""

    problem: ProcessorProblem
    times: tuple[tuple[int | None, ...], ...]

    def assigned(self) -> tuple[ProcessorAssignment, dict[int, FoundForms]]:
        """The least total found, and those of single processors that can run all; never worse than the best of them."""
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
    """The problem. call_seconds: of a call of our C. forced: processors of single operators.

    Raises UnsupportedModel for an operator that runs on none of them, BadPlatform for a memory without a way to it.
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
    """Values that cross between tasks: inputs that are brought, results that are taken, all between operators."""
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
    """Ways between all pairs, the caller with the memory of the tensors."""
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
