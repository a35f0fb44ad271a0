"""Operators as tasks to share among processors: the forms of each task, transfers between processors, and groups.

A run starts on the platform's first processor, which the application calls, and ends there. A task ahead of all others
and a task after all others express this. A pipeline has neither, because its first stage takes an input while the last
stage is still busy with an earlier input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.dataflow import bindings, op_name, outputs
from relay_passes.processors.row_parts import Chain, chain_time, cuttable, split_rows
from relay_passes.processors.sequence_parts import cuttable_sequence
from relay_passes.solvers.graph import live_bytes
from relay_passes.solvers.processors.driven import Driving
from relay_passes.solvers.processors.problem import (
    WHOLE,
    FormPart,
    ProcessorProblem,
    Route,
    Task,
    TaskForm,
    TaskValue,
)
from tvm_ext.core.decisions.composites import RowSplit, StreamDirection
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.objectives import Objective
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import CALL_CYCLES

MICROWATTS = 1_000_000
LEAST_SIGNALS = 4
"""Least duration of a layer, in signals between processors, for which cutting it is worthwhile."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedWork:
    """A problem of placement, and what its tasks stand for.

    units: the steps of each unit, which is placed as one task, for example a sequence that runs row by row. parts: for
    each task and form, the chain of each processor, for units that are cut into rows or channels. first: number of
    tasks before those of the units. together: sets of tasks that must run on one processor, uncut.
    """

    problem: ProcessorProblem
    units: tuple[tuple[int, ...], ...]
    parts: Mapping[tuple[int, int], tuple[Chain, ...]]
    first: int
    together: tuple[frozenset[int], ...] = ()

    def unit_of(self, task: int) -> tuple[int, ...]:
        """Return the steps of a task, or none for the tasks that only start or end the run."""
        unit = task - self.first
        return self.units[unit] if 0 <= unit < len(self.units) else ()


def shared_work(
    operators: OperatorGraph,
    costs: Sequence[ProcessorCosts],
    platform: Platform,
    objective: Objective,
    tight_bytes: int | None = None,
) -> SharedWork | None:
    """Return the problem of sharing, or None where no processor can run some operator.

    tight_bytes: where set, accelerators take no operator at which more bytes are live, because their results cannot
    share bytes with their inputs.
    """
    units, routes = _units(operators), routes_of(costs, platform)
    live = _live_apart(operators) if tight_bytes is not None else []
    forms: list[list[TaskForm]] = []
    parts: dict[tuple[int, int], tuple[Chain, ...]] = {}
    first = 0 if objective == "throughput" else 1
    kept = kept_together(operators) if objective == "throughput" else []
    for number, unit in enumerate(units):
        whole = _whole_times(operators, unit, costs)
        if tight_bytes is not None and max(live[index] for index in unit) > tight_bytes:
            whole = {processor: time for processor, time in whole.items() if not costs[processor].is_offload}
        if not whole:
            return None
        forms.append([TaskForm(parts=(FormPart(processor=p, time=time),)) for p, time in whole.items()])
        is_kept = any(steps.intersection(unit) for steps in kept)
        for cut in () if is_kept else _cuts(operators, unit, costs, whole, routes):
            parts[number + first, len(forms[-1])] = cut
            forms[-1].append(_form_of(cut))
    tasks = [
        Task(forms=tuple(own), weights_bytes=_weights_bytes(operators, unit, costs))
        for own, unit in zip(forms, units, strict=True)
    ]
    values = _values(operators, units, first)
    if first:
        edge = Task(forms=(TaskForm(parts=(FormPart(processor=0, time=0),)),))
        tasks = [edge, *tasks, edge]
        values += _borders(operators, units, moves=any(route.time_per_byte for route in routes.values()))
    problem = ProcessorProblem(
        names=tuple(cost.processor.name for cost in costs),
        powers=tuple(max(1, round(cost.processor.watts * MICROWATTS)) for cost in costs),
        tasks=tuple(tasks), values=tuple(values), routes=routes,
    )  # fmt: skip
    together = [{n + first for n, unit in enumerate(units) if steps.intersection(unit)} for steps in kept]
    return SharedWork(
        problem=problem, units=units, parts=parts, first=first, together=tuple(map(frozenset[int], together))
    )


def _live_apart(operators: OperatorGraph) -> list[int]:
    """Return the bytes alive at each step in order, if no result overwrites an operand."""
    graph = operators.graph()
    apart = tuple(replace(node, shared_bytes={}, extra_bytes=0) for node in graph.nodes)
    return live_bytes(replace(graph, nodes=apart), range(len(apart)))


def _units(operators: OperatorGraph) -> tuple[tuple[int, ...], ...]:
    """Return the steps in order, with the steps of each sequence together."""
    found: list[list[int]] = []
    last = ""
    for index, composite in enumerate(operators.composites):
        sequence = RowSplit.read(composite).sequence
        if sequence and sequence == last:
            found[-1].append(index)
        else:
            found.append([index])
        last = sequence
    return tuple(map(tuple, found))


def _whole_times(operators: OperatorGraph, unit: Sequence[int], costs: Sequence[ProcessorCosts]) -> dict[int, int]:
    """Return the time of a unit on each processor that can run all of it.

    Callbacks of the application run on the first processor. Accelerators take no sequences by rows, and their time
    includes the first core's call that starts them.
    """
    found: dict[int, int] = {}
    start = costs[0].from_cycles(CALL_CYCLES)
    in_rows = len(unit) > 1 or any(RowSplit.read(operators.composites[index]).sequence for index in unit)
    for processor, cost in enumerate(costs):
        if cost.is_offload and in_rows:
            continue
        composites = [operators.composites[index] for index in unit]
        times = [cost.nanoseconds(composite) if composite is not None else None for composite in composites]
        is_callback = any(StreamDirection.read(composite).direction for composite in composites)
        if None not in times and (processor == 0 or not is_callback):
            found[processor] = sum(time for time in times if time is not None)
            found[processor] += start + fetch_time(composites[0], costs, cost) if cost.is_offload else 0
    return found


def _cuts(
    operators: OperatorGraph,
    unit: Sequence[int],
    costs: Sequence[ProcessorCosts],
    whole: Mapping[int, int],
    routes: Mapping[tuple[int, int], Route],
) -> list[tuple[Chain, ...]]:
    """Return a cut of a layer, or of a sequence, for each set of processors that can run it."""
    composite = operators.composites[unit[0]]
    whole = {processor: time for processor, time in whole.items() if not costs[processor].is_offload}
    signal = max((route.signal_time for route in routes.values()), default=0)
    if composite is None or len(whole) < 2 or min(whole.values()) < LEAST_SIGNALS * signal:
        return []
    in_series = bool(RowSplit.read(composite).sequence)
    layer = cuttable_sequence(operators, unit) if in_series else cuttable(composite, costs[0])
    if layer is None:
        return []
    sets = [chosen for count in range(2, len(whole) + 1) for chosen in combinations(sorted(whole), count)]
    cuts = [split_rows(layer, costs, [(p, whole[p]) for p in chosen]) for chosen in sets]
    return [cut for cut in cuts if cut]


def _form_of(cut: Sequence[Chain]) -> TaskForm:
    rows = cut[-1][-1].rows[1]
    return TaskForm(
        parts=tuple(
            FormPart(
                processor=chain[-1].processor, time=chain_time(chain),
                share=max(1, WHOLE * (chain[-1].rows[1] - chain[-1].rows[0]) // rows),
            )
            for chain in cut
        )
    )  # fmt: skip


def _weights_bytes(operators: OperatorGraph, unit: Sequence[int], costs: Sequence[ProcessorCosts]) -> int:
    composites = [operators.composites[index] for index in unit]
    return sum(costs[0].backend.footprint(composite).weights_bytes for composite in composites if composite is not None)


def _values(operators: OperatorGraph, units: Sequence[Sequence[int]], first: int) -> list[TaskValue]:
    """Return the values that one task computes and others read."""
    graph = operators.graph()
    task_of = {step: number + first for number, unit in enumerate(units) for step in unit}
    readers: dict[int, dict[int, None]] = {}
    for step, node in enumerate(graph.nodes):
        for value in node.reads:
            readers.setdefault(value, {})[task_of[step]] = None
    found: list[TaskValue] = []
    for step, node in enumerate(graph.nodes):
        for value in node.writes:
            others = tuple(task for task in readers.get(value, ()) if task != task_of[step])
            if others:
                found.append(TaskValue(maker=task_of[step], readers=others, size_bytes=graph.sizes[value]))
    return found


def _borders(operators: OperatorGraph, units: Sequence[Sequence[int]], *, moves: bool = False) -> list[TaskValue]:
    """Return the values between the tasks of the run's start and end and all other tasks.

    The first task makes what units read first, and the last task waits for everything that no unit waits for.
    moves: whether inputs and outputs have bytes that may be moved to other memories.
    """
    graph, last = operators.graph(), len(units) + 1
    made = {v: number + 1 for number, unit in enumerate(units) for step in unit for v in graph.nodes[step].writes}
    reads = [{value for step in unit for value in graph.nodes[step].reads} for unit in units]
    begun = tuple(n + 1 for n, values in enumerate(reads) if all(made.get(v, n + 1) == n + 1 for v in values))
    awaited = {made[v] for number, values in enumerate(reads) for v in values if made.get(v, number + 1) != number + 1}
    found = [TaskValue(maker=0, readers=begun, size_bytes=0)]
    for task in range(1, last):
        if task not in awaited or any(made.get(value) == task for value in graph.outputs):
            found.append(TaskValue(maker=task, readers=(last,), size_bytes=0))
    if moves:
        for value in range(operators.num_params):
            readers = tuple(number + 1 for number, values in enumerate(reads) if value in values)
            found += [TaskValue(maker=0, readers=readers, size_bytes=graph.sizes[value])] if readers else []
        for value in sorted(graph.outputs & made.keys()):
            found.append(TaskValue(maker=made[value], readers=(last,), size_bytes=graph.sizes[value]))
    return found


def fast_memory_bytes(platform: Platform) -> int:
    """Return the bytes of the fastest RAM, or of the smaller one if two are equally fast."""
    rams = [memory for memory in platform.memories if memory.kind == "ram"]
    fastest = min(rams, key=lambda memory: (-memory.read_bytes_per_cycle, memory.usable_bytes))
    return fastest.usable_bytes


def kept_together(operators: OperatorGraph) -> list[frozenset[int]]:
    """Return the steps of each state that changes. States that swap places or share a step form one set."""
    states = len(KeptStates.read(operators.mod).states)
    if not states:
        return []
    found: list[tuple[set[int], set[int]]] = []
    for param, result in zip(operators.main.params[-states:], outputs(operators.main)[-states:], strict=True):
        values = {*operators.values[param], *operators.values.get(result, ())}
        if values != {*operators.values[param]}:
            found.append((values, _users(operators, operators.values[param], values)))
    merged: list[tuple[set[int], set[int]]] = []
    for values, steps in found:
        meeting = [one for one in merged if one[0] & values or one[1] & steps]
        merged = [one for one in merged if one not in meeting]
        merged.append((values.union(*(one[0] for one in meeting)), steps.union(*(one[1] for one in meeting))))
    return [frozenset(steps) for _, steps in merged if steps]


def _users(operators: OperatorGraph, state: tuple[int, ...], values: set[int]) -> set[int]:
    """Return the steps that read a state's current value, compute its next value, or read a window of it."""
    readers = {step for step, node in enumerate(operators.nodes) if {*node.reads} & {*state}}
    windows = {value for step in readers if _joins(operators, step) for value in operators.nodes[step].writes}
    of_windows = {step for step, node in enumerate(operators.nodes) if windows & {*node.reads}}
    return readers | of_windows | {operators.made_by[value] for value in values if value in operators.made_by}


def _joins(operators: OperatorGraph, step: int) -> bool:
    composite = operators.composites[step]
    values = [] if composite is None else [binding.value for binding in bindings(composite)]
    return any(isinstance(value, relax.Call) and op_name(value) == "relax.concat" for value in values)


def routes_of(costs: Sequence[ProcessorCosts], platform: Platform) -> dict[tuple[int, int], Route]:
    """Return the routes between processors.

    Cores share the memory of the tensors, so only signals cross. The first core sends and receives for accelerators.
    """
    callers = [costs[0] if cost.is_offload else cost for cost in costs]
    routes: dict[tuple[int, int], Route] = {}
    for source, one in enumerate(callers):
        for target, other in enumerate(callers):
            signal = platform.signal_between(one.processor.name, other.processor.name)
            if signal:
                routes[source, target] = Route(signal_time=one.from_cycles(signal.latency_cycles))
            elif one is other and source != target:
                routes[source, target] = Route()
    for source, target in routes:
        near = [platform.near_memory(costs[number].processor) or platform.activations for number in (source, target)]
        if near[0] != near[1]:
            routes[source, target] = _moving(costs[0], routes[source, target], near[0], near[1])
    return routes


def _moving(first: ProcessorCosts, route: Route, source: str, target: str) -> Route:
    """Return a route that moves tensors between memories.

    Where neither end is the default memory, the tensors pass through it.
    """
    home, probe = first.time.platform.activations, 1 << 12
    ways = [(source, target)] if home in (source, target) else [(source, home), (home, target)]
    none, some = (
        sum(first.time.transfer_cycles(*way, num_bytes) for way in ways) for num_bytes in (0, probe)
    )  # fmt: skip
    time = first.from_cycles(probe * 1000) / (probe * 1000) * (some - none) / probe
    return replace(route, transfer_time=first.from_cycles(none + CALL_CYCLES), time_per_byte=time)


def driving_of(costs: Sequence[ProcessorCosts]) -> Driving | None:
    """Return the accelerators among the processors, or None."""
    found = frozenset(number for number, cost in enumerate(costs) if cost.is_offload)
    return Driving(accelerators=found, call_time=costs[0].from_cycles(CALL_CYCLES)) if found else None


def fetch_time(composite: relax.Function | None, costs: Sequence[ProcessorCosts], cost: ProcessorCosts) -> int:
    """Return the time to bring weights to an accelerator that does not reach them."""
    platform = costs[0].time.platform
    near = platform.near_memory(cost.processor)
    if not near or composite is None or platform.reached_by(cost.processor.name, platform.weights):
        return 0
    num_bytes = cost.backend.footprint(composite).weights_bytes
    return costs[0].from_cycles(costs[0].time.transfer_cycles(platform.weights, near, num_bytes))
