"""Offsets for buffers with lifetimes, so that buffers alive together don't overlap: dynamic storage allocation.

First fit reaches the lower bound on most programs. Where it does not, a few moments alone may prove a higher bound,
what lies too high is placed anew with its neighbours, and the exact search looks between bound and what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.arena.first_fit import first_fit, improve
from codegen_c.arena.problem import Buffer, Choice, clearances, height, lower_bound
from codegen_c.arena.subproblem import PackingProblem, raised_bound, repaired
from tvm_ext.core.errors import PlanRejected

__all__ = ["Buffer", "Choice", "Solution", "height", "lower_bound", "optimise", "solve"]

MOST_NODES = 60_000
"""Partial solutions that the search below the bound may look at; fewer where each of them is much work."""

LATER_NODES = MOST_NODES // 3
"""The same for each of the heights above the bound."""

UNPROVED_PARTS = 1000
"""Resolution where a search gave up: heights closer than one part in this many of the bound are not told apart."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Offset of each buffer, the bytes they take, and the bytes that are needed at least.

    proved: no offsets take less.
    """

    offsets: list[int]
    num_bytes: int
    lower_bound_bytes: int

    @property
    def proved(self) -> bool:
        return self.num_bytes == self.lower_bound_bytes


def solve(buffers: Sequence[Buffer], choices: Sequence[Choice] = (), bound: int | None = None) -> list[int]:
    """Offset of each buffer; see `optimise`."""
    return optimise(buffers, choices, bound).offsets


def optimise(buffers: Sequence[Buffer], choices: Sequence[Choice] = (), bound: int | None = None) -> Solution:
    """The lowest offsets found. The same problem gives the same offsets.

    choices: pairs that may overlap partly. bound: what is known to be needed; by default the most bytes alive.
    Raises PlanRejected if buffers with given offsets overlap each other.
    """
    near = clearances(buffers)
    _check_fixed(buffers, near, choices)
    least = lower_bound(buffers) if bound is None else bound
    fixed = [buffer.offset + buffer.size for buffer in buffers if buffer.offset is not None]
    least = max([least, *fixed])
    best = first_fit(buffers, near, choices, least)
    if best.num_bytes <= least:
        return Solution(offsets=best.offsets, num_bytes=best.num_bytes, lower_bound_bytes=best.num_bytes)
    problem = PackingProblem(buffers=buffers, near=near, choices=choices)
    offsets, known = _bisect(problem, best.offsets, raised_bound(problem, least, best.num_bytes))
    if known < height(buffers, offsets):
        better = improve(buffers, near, choices, known, best)
        offsets = min(offsets, better.offsets, key=lambda found: height(buffers, found))
    return Solution(offsets=offsets, num_bytes=height(buffers, offsets), lower_bound_bytes=known)


def _bisect(problem: PackingProblem, offsets: list[int], known: int) -> tuple[list[int], int]:
    """Lower offsets if there are, and the bytes that are needed at least. First at the bound itself, then between."""
    work = len(problem.buffers) + 20 * sum(map(len, problem.near)) // len(problem.buffers)
    worth, capacity, most_nodes, close_enough = known, known, MOST_NODES, 0
    while worth + close_enough < height(problem.buffers, offsets):
        found = repaired(problem, offsets, capacity)
        if found is None:
            result = problem.solved_below(capacity, most_nodes * 1000 // max(1000, work))
            found, known = result.offsets, capacity + 1 if result.exhausted else known
            most_nodes = LATER_NODES
        if found is None:
            worth = capacity + 1
            close_enough = known // UNPROVED_PARTS if known < worth else 0
        else:
            offsets = found
        capacity = (worth + height(problem.buffers, offsets) - 1) // 2
    return offsets, known


def _check_fixed(buffers: Sequence[Buffer], near: Sequence[Mapping[int, int]], choices: Sequence[Choice]) -> None:
    closer = {pair for choice in choices for way in choice for pair in way}
    for i, buffer in enumerate(buffers):
        for j, above in near[i].items():
            other = buffers[j]
            if buffer.offset is None or other.offset is None or buffer.offset > other.offset or (i, j) in closer:
                continue
            if other.offset < buffer.offset + above and (buffer.offset < other.offset or i < j):
                raise PlanRejected(
                    f"buffers {i} ({buffer.size} B at {buffer.offset}) and {j} ({other.size} B at {other.offset}) are "
                    "in use at the same time and overlap where they are fixed. Move one of them."
                )
