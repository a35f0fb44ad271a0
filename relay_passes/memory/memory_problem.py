"""Express the operators of a module as an assignment problem over several memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.backend import Backend
from relay_passes.searched import Searched
from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from relay_passes.solvers.split.segment import Segment
from tvm_ext.core.decisions.composites import OperatorProcessor, RowSplit
from tvm_ext.core.time_model import KernelTime, TimeModel, Traffic

_STREAMED = Traffic(transactions=0.0, bursts=0.0, num_bytes=1.0)


def near_memories(time: TimeModel, limits: Mapping[str, int]) -> tuple[str, ...]:
    """Return the memories other than the default memory that may give bytes, in the platform's order."""
    home = time.platform.activations
    return tuple(memory.name for memory in time.platform.memories if memory.name in limits and memory.name != home)


def has_higher_rate(time: TimeModel, memory: str) -> bool:
    """Return True for a memory that streams faster than the default memory, or that belongs to another processor."""
    home = time.platform.activations
    return not time.reaches(memory) or time.wait_cycles(memory, _STREAMED) < time.wait_cycles(home, _STREAMED)


def whole_problem(
    known: Searched,
    backend: Backend,
    time: TimeModel,
    limits: Mapping[str, int],
    others: Mapping[str, ProcessorCosts] = MappingProxyType({}),
) -> AssignmentProblem:
    """Return the problem of a module whose operators all run whole.

    The arguments are those of `AssignMemories`.
    """
    operators, clock_hz, placed = known.operators, time.platform.processor.clock_hz, known.placed
    graph, composites = operators.graph().without_bytes_of(placed.keys()), _composites(known.mod, operators)
    called = Counter(steps[0].value.op for steps in operators.steps)
    steps: list[Step] = []
    for composite, node, (computing, *_) in zip(composites, graph.nodes, operators.steps, strict=True):
        processor = OperatorProcessor.read(composite).processor
        other = others.get(processor)
        cost = (other.backend if other else backend).footprint(composite)
        own = other.time if other else time
        cycles = own.compute_cycles(cost.kernel, cost.instructions)
        reads: Counter[int] = Counter()
        for argument, leaf in enumerate(computing.value.args):
            for value in operators.values[leaf]:
                reads[value] += cost.read_bytes.get(argument, operators.sizes[value])
        kernel = own.kernel(cost.kernel)
        cycles += _port_cycles(own, kernel, reads, {value: operators.sizes[value] for value in node.writes}, placed)
        steps.append(
            Step(
                cycles=cycles * clock_hz / other.processor.clock_hz if other else cycles,
                reads={value: 0 if value in placed else size for value, size in reads.items()},
                writes={value: graph.sizes[value] for value in node.writes}, kernel=kernel,
                weights_bytes=cost.weights_bytes, weights_read_bytes=cost.weights_read_bytes,
                scratch_bytes=cost.scratch_bytes, scratch_access_bytes=cost.scratch_access_bytes,
                shared=dict(node.shared_bytes), processor=processor,
                # A function with several calls carries a single set of attributes, so its calls cannot differ.
                movable=called[computing.value.op] == 1,
            )
        )  # fmt: skip
    return AssignmentProblem(
        steps=tuple(steps), sizes=graph.sizes, outputs=graph.outputs, default_memory=time.platform.activations,
        near=near_memories(time, limits), limits=limits, stored=time.platform.weights, time=time,
        free_ports=known.free_ports,
    )  # fmt: skip


def _port_cycles(
    time: TimeModel, kernel: KernelTime, reads: Mapping[int, int], writes: Mapping[int, int], placed: Mapping[int, str]
) -> float:
    """Return the cycles that memories add where a step accesses ports outside the default memory.

    These values take no part in the search.
    placed: the memory of each value.
    """
    read = sum(time.read_cycles(placed[one], size, kernel.input) for one, size in reads.items() if one in placed)
    return read + sum(time.write_cycles(placed[v], size, kernel.output) for v, size in writes.items() if v in placed)


def sequences_of(mod: tvm.IRModule, operators: OperatorGraph) -> Iterator[Segment]:
    """Yield the row-by-row sequences of a module as segments, without their needs and costs."""
    splits = [RowSplit.read(composite) for composite in _composites(mod, operators)]
    for sequence, group in groupby(range(len(splits)), lambda index: splits[index].sequence):
        inside = list(group)
        if sequence and len(inside) > 1:
            last = splits[inside[-1]]
            yield Segment(
                begin=inside[0], end=inside[-1] + 1, rows_per_call=last.rows_per_call, input_rows=last.input_rows,
                num_bytes=0, cost=0,
            )  # fmt: skip


def _composites(mod: tvm.IRModule, operators: OperatorGraph) -> Sequence[relax.Function]:
    return [mod[steps[0].value.op] for steps in operators.steps]
