"""Cuts into sequences that run row by row, for the least time where values lie in several memories.

What runs in series keeps a few rows, which a near memory has room for where it has none for whole results. The time of
a segment is taken to be that of its instructions, and of its operands between all near and all at home, by how much of
what it needs the near memory has no room for; of such prices the best cut follows from the best cuts of all shorter
orders (`split.search`). Where values really go is decided of each cut afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.split.search import Split, cheapest_cut
from relay_passes.solvers.split.segment import Ending
from relay_passes.solvers.split.segments import Segments

Outside = Callable[[Ending], np.ndarray]
"""Segments with one end -> float64[segments]: the part of their operands that is expected at home, 0 to 1."""


class SegmentTimes:
    """Sums over a problem's steps, from the first one on: float64[steps + 1].

    near, home: cycles that memories add where all operands lie near, and where all are at home; weights_home: of home,
    what weights take. weights: bytes. cycles: of instructions.
    """

    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem = problem
        indices = range(len(problem.steps))
        self.near = _added([min(_waits(problem, index, memory) for memory in problem.near) for index in indices])
        self.home = _added([_waits(problem, index, "") for index in indices])
        self.weights_home = _added([problem.weights_cycles(index, problem.stored) for index in indices])
        self.weights = _added([step.weights_bytes for step in problem.steps])
        self.cycles = _added([step.cycles for step in problem.steps])
        self.room = max(problem.limits[memory] for memory in problem.near)
        self.per_instruction = problem.time.compute_cycles("", 1.0)

    def of_platform(self) -> tuple[float, ...]:
        """Room of all near memories in that of the largest, how much longer all waits at home, whether a DMA copies
        values, and weights, to the first near memory."""
        problem = self.problem
        ways = ((source, problem.near[0]) for source in (problem.home, problem.stored))
        rooms = sum(problem.limits[memory] for memory in problem.near) / max(self.room, 1)
        return rooms, self.home[-1] / max(self.near[-1], 1.0), *(float(problem.time.has_dma(*way)) for way in ways)

    @staticmethod
    def between(added: np.ndarray, ending: Ending) -> np.ndarray:
        """One of the sums over the steps of each segment."""
        return added[ending.end] - added[ending.begins]

    def outside(self, ending: Ending, share: float = 1.0) -> np.ndarray:
        """The part of what segments need that the largest near memory has no room for, were so much of it free."""
        return np.clip(1 - share * self.room / np.maximum(ending.num_bytes, 1), 0, 1)

    def fastest(self, segments: Segments, outside: Outside) -> Split:
        """The cut of least time."""

        def prices(ending: Ending) -> tuple[np.ndarray, np.ndarray]:
            near, home = self.between(self.near, ending), self.between(self.home, ending)
            cycles = ending.prices * self.per_instruction + near + outside(ending) * (home - near)
            return np.zeros(len(cycles), np.int64), cycles.astype(np.int64)

        return cheapest_cut(len(self.problem.steps), segments, prices)


def _waits(problem: AssignmentProblem, index: int, near: str) -> float:
    """Cycles that memories add to a step where all its operands lie in one; at home, weights where they are stored."""
    step, memory = problem.steps[index], near or problem.home
    if not problem.reaches(index, memory):
        memory = problem.home
    waits = sum(problem.read_cycles(index, memory, value) for value in step.reads)
    waits += sum(problem.write_cycles(index, memory, value) for value in step.writes)
    if step.scratch_access_bytes:
        waits += problem.scratch_cycles(index, memory)
    if step.weights_read_bytes:
        waits += problem.weights_cycles(index, memory if near else problem.stored)
    return waits


def _added(numbers: list[float] | list[int]) -> np.ndarray:
    return np.array([0.0, *np.cumsum(numbers)])
