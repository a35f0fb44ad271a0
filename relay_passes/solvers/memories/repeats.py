"""Recomputations that may be faster than keeping a value that waits long in the slow default memory."""

from __future__ import annotations

from collections.abc import Collection
from math import log2
from typing import NamedTuple

import numpy as np

from relay_passes.solvers.memories.problem import AssignmentProblem

SHORTEST = 3
"""Least number of steps between two uses of a value for the value to count as waiting."""
NUM_FACTS = 8


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


def facts_of(problem: AssignmentProblem, repeats: Collection[Rerun]) -> np.ndarray:
    """Return float32[repeats, NUM_FACTS], the features of recomputations for a learned cost model, without units."""
    near, total = problem.near[0], sum(step.cycles for step in problem.steps)
    mean = max(total / len(problem.steps), 1.0)
    room = max(problem.limits[near], 1)
    rows: list[tuple[float, ...]] = []
    for maker, reader, since, kept, again in repeats:
        (value, *_) = problem.steps[maker].writes
        between = sum(step.cycles for step in problem.steps[since + 1 : reader])
        largest = max(max(problem.sizes[v] for v in step.writes) for step in problem.steps[since + 1 : reader])
        held = sum(problem.sizes[read] for read in problem.steps[maker].reads)
        rows.append(
            (
                log2(kept / max(again, 1.0)), kept / mean, log2(problem.sizes[value] / room + 1e-6),
                log2(largest / room + 1e-6), log2(held / max(problem.sizes[value], 1) + 1e-6), reader - since,
                between / max(kept, 1.0), float(problem.time.has_dma(problem.default_memory, near)),
            )
        )  # fmt: skip
    return np.array(rows, np.float32).reshape(len(rows), NUM_FACTS)
