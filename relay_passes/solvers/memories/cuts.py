"""Cuts of a schedule into row sequences for several memories, by bytes and by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from relay_passes.solvers.split.kept_rows import KeptRows, kept_in
from relay_passes.solvers.split.search import Split, cheapest_cut
from relay_passes.solvers.split.segment import Ending, Segment
from relay_passes.solvers.split.segments import Segments
from tvm_ext.core.time_model import Traffic


def cut_problem(
    problem: AssignmentProblem, segments: Segments, cut: Iterable[Segment]
) -> tuple[AssignmentProblem, dict[int, int]]:
    """Return the problem of a cut, and the host of each value that lies among the rows of another value.

    segments: of the problem's steps. A value that only one sequence touches takes the bytes of its rows there.
    """
    sizes, hosts = [*problem.sizes], dict[int, int]()
    steps = [*problem.steps]
    for segment in cut:
        if not segment.rows_per_call:
            continue
        kept = kept_in(segments, segment.begin, segment.end, segment.rows_per_call, segment.input_rows)
        hosts |= kept.hosts
        for value, num_bytes in kept.num_bytes.items():
            sizes[value] = num_bytes
        for value in kept.hosts:
            sizes[value] = 0
        added = problem.time.compute_cycles("", kept.cost)
        for index in range(segment.begin, segment.end):
            steps[index] = _in_series(steps[index], kept, is_first=index == segment.begin)
        first = steps[segment.begin]
        accessed, access = _scratch_of(problem.steps[segment.begin : segment.end])
        steps[segment.begin] = replace(
            first, cycles=first.cycles + added, kernel=replace(first.kernel, scratch=access),
            scratch_bytes=kept.scratch_bytes, scratch_access_bytes=accessed,
        )  # fmt: skip
        steps[segment.end - 1] = replace(steps[segment.end - 1], shared=kept.shared)
    return replace(problem, steps=tuple(steps), sizes=tuple(sizes)), hosts


def _scratch_of(steps: Sequence[Step]) -> tuple[int, Traffic]:
    """Return the bytes of scratch that the steps of a sequence access, and their mean traffic for each byte.

    The sequence has one scratch buffer, which counts as that of its first step, but each kernel accesses it in its own
    way.
    """
    accessed = sum(step.scratch_access_bytes for step in steps)
    shares = [(step.kernel.scratch, step.scratch_access_bytes / max(accessed, 1)) for step in steps]
    return accessed, Traffic(
        transactions=sum(one.transactions * share for one, share in shares),
        bursts=sum(one.bursts * share for one, share in shares),
        num_bytes=sum(one.num_bytes * share for one, share in shares),
    )


def _in_series(step: Step, kept: KeptRows, *, is_first: bool) -> Step:
    """Return a step as part of a sequence, with its operands where their rows lie.

    A value that the step writes among the rows of another value counts as a read of the other.
    """
    reads = dict[int, int]()
    for value, num_bytes in (*step.reads.items(), *((v, n) for v, n in step.writes.items() if v in kept.hosts)):
        home = kept.hosts.get(value, value)
        reads[home] = reads.get(home, 0) + num_bytes
    return replace(
        step, reads=reads, writes={value: size for value, size in step.writes.items() if value not in kept.hosts},
        scratch_bytes=0, scratch_access_bytes=0, shared={}, together=not is_first,
    )  # fmt: skip


Outside = Callable[[Ending], np.ndarray]
"""Returns the expected fraction of the operands in the default memory, float64[segments] from 0 to 1, for an ending."""


class SegmentTimes:
    """Cumulative sums over a problem's steps, float64[steps + 1].

    near: cycles that memories add where all operands lie in a fast memory.
    home: the same for the default memory.
    """

    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem = problem
        indices = range(len(problem.steps))
        self.near = _added([min(_waits(problem, index, memory) for memory in problem.near) for index in indices])
        self.home = _added([_waits(problem, index, "") for index in indices])
        self.room = max(problem.limits[memory] for memory in problem.near)
        self.per_instruction = problem.time.compute_cycles("", 1.0)

    @staticmethod
    def between(added: np.ndarray, ending: Ending) -> np.ndarray:
        """Return the increase of a cumulative sum over the steps of each segment."""
        return added[ending.end] - added[ending.begins]

    def outside(self, ending: Ending, share: float = 1.0) -> np.ndarray:
        """Return the fraction of each segment's bytes that does not fit the given share of the largest fast memory."""
        return np.clip(1 - share * self.room / np.maximum(ending.num_bytes, 1), 0, 1)

    def fastest(self, segments: Segments, outside: Outside) -> Split:
        """Return the cut with the least time."""

        def prices(ending: Ending) -> tuple[np.ndarray, np.ndarray]:
            near, home = self.between(self.near, ending), self.between(self.home, ending)
            cycles = ending.prices * self.per_instruction + near + outside(ending) * (home - near)
            return np.zeros(len(cycles), np.int64), cycles.astype(np.int64)

        return cheapest_cut(len(self.problem.steps), segments, prices)


def _waits(problem: AssignmentProblem, index: int, near: str) -> float:
    """Return the cycles that memories add to a step with all operands in one memory.

    Where that is the default memory, weights are read from where they are stored.
    """
    step, memory = problem.steps[index], near or problem.default_memory
    if not problem.reaches(index, memory):
        memory = problem.default_memory
    waits = sum(problem.read_cycles(index, memory, value) for value in step.reads)
    waits += sum(problem.write_cycles(index, memory, value) for value in step.writes)
    if step.scratch_access_bytes:
        waits += problem.scratch_cycles(index, memory)
    if step.weights_read_bytes:
        waits += problem.weights_cycles(index, memory if near else problem.stored)
    return waits


def _added(numbers: list[float]) -> np.ndarray:
    return np.array([0.0, *np.cumsum(numbers)])
