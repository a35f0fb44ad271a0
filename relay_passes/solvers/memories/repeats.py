"""Recomputations that may be faster than keeping a value that waits long in the slow default memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from relay_passes.solvers.memories.problem import AssignmentProblem

SHORTEST = 3
"""Least number of steps between two uses of a value for the value to count as waiting."""


class Rerun(NamedTuple):
    """A step that runs once more right ahead of another step.

    since: the last step that reads its result until then.
    kept: the cycles by which reading the result from the default memory exceeds reading it from a fast memory.
    again: the cycles of recomputing it in fast memory.
    """

    maker: int
    reader: int
    since: int
    kept: float
    again: float


def promising(problem: AssignmentProblem) -> list[Rerun]:
    """Return the recomputations that take fewer cycles than reading the value from default memory, best ratio first."""
    near = problem.near[0]
    found: list[Rerun] = []
    for value, maker in problem.makers.items():
        step = problem.steps[maker]
        if not all(problem.reaches(index, near) for index in (maker, *problem.uses[value])):
            continue
        again = step.cycles + sum(problem.read_cycles(maker, near, read) for read in step.reads)
        for since, reader in zip((maker, *problem.uses[value]), problem.uses[value], strict=False):
            kept = problem.read_cycles(reader, problem.default_memory, value) - problem.read_cycles(reader, near, value)
            if reader - since >= SHORTEST and kept > again:
                found.append(Rerun(maker, reader, since, kept, again))
    return sorted(found, key=lambda repeat: (repeat.again / repeat.kept, repeat.reader, repeat.maker))


def sequence_of(num_steps: int, repeats: Collection[Rerun]) -> tuple[int, ...]:
    """Return the order of a number of steps with some recomputations."""
    before: dict[int, list[int]] = {}
    for repeat in sorted(repeats):
        before.setdefault(repeat.reader, []).append(repeat.maker)
    return tuple(index for step in range(num_steps) for index in (*before.get(step, ()), step))
