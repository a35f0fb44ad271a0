"""The problem of several memories for a sequence in which some steps are repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relay_passes.solvers.memories.problem import AssignmentProblem, Step


def repeated_problem(problem: AssignmentProblem, sequence: Sequence[int]) -> AssignmentProblem:
    """Return the problem of a sequence. A repeated step writes new values, which are read from there on.

    Values have the numbers that `recompute.in_rows.unrolled` gives them.
    """
    sizes, latest = [*problem.sizes], list(range(len(problem.sizes)))
    steps, ran = list[Step](), set[int]()
    for index in sequence:
        step = problem.steps[index]
        reads = {latest[value]: num_bytes for value, num_bytes in step.reads.items()}
        shared = {latest[value]: num_bytes for value, num_bytes in step.shared.items()}
        if index in ran:
            for value in step.writes:
                latest[value] = len(sizes)
                sizes.append(problem.sizes[value])
        ran.add(index)
        writes = {latest[value]: num_bytes for value, num_bytes in step.writes.items()}
        steps.append(replace(step, reads=reads, writes=writes, shared=shared))
    outputs = frozenset(latest[value] for value in problem.outputs)
    return replace(problem, steps=tuple(steps), sizes=tuple(sizes), outputs=outputs)
