"""A problem of several memories whose steps are cut into sequences that run row by row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from relay_passes.solvers.split.kept_rows import KeptRows, kept_in
from relay_passes.solvers.split.segment import Segment
from relay_passes.solvers.split.segments import Segments


def cut_problem(
    problem: AssignmentProblem, segments: Segments, cut: Iterable[Segment]
) -> tuple[AssignmentProblem, dict[int, int]]:
    """The problem of a cut, and of each value that lies among the rows of another one, that one.

    segments: of the problem's steps. Of a value that only one sequence touches, only its rows there take bytes.
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
        accessed = sum(step.scratch_access_bytes for step in problem.steps[segment.begin : segment.end])
        steps[segment.begin] = replace(
            first, cycles=first.cycles + added, scratch_bytes=kept.scratch_bytes, scratch_access_bytes=accessed
        )
        steps[segment.end - 1] = replace(steps[segment.end - 1], shared=kept.shared)
    return replace(problem, steps=tuple(steps), sizes=tuple(sizes)), hosts


def _in_series(step: Step, kept: KeptRows, *, is_first: bool) -> Step:
    """A step as part of a sequence: operands where their rows lie; what it writes among others' as if it read it."""
    reads = dict[int, int]()
    for value, num_bytes in (*step.reads.items(), *((v, n) for v, n in step.writes.items() if v in kept.hosts)):
        home = kept.hosts.get(value, value)
        reads[home] = reads.get(home, 0) + num_bytes
    return replace(
        step, reads=reads, writes={value: size for value, size in step.writes.items() if value not in kept.hosts},
        scratch_bytes=0, scratch_access_bytes=0, shared={}, together=not is_first,
    )  # fmt: skip
