"""Buffers around some moments of a packing problem, as a problem of its own: to prove a bound, or repair a solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from codegen_c.arena.decide import Feasibility, Neighbours, decide
from codegen_c.arena.problem import Buffer, Choice, Distances, clearances

BOUND_WIDTHS = (1, 2, 4)
MOST_TO_BOUND = 24
BOUND_NODES = 2_000
"""Moments in a row whose buffers are looked at alone for a bound, how many those may be, and the effort."""

REPAIR_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REPAIR_NODES = 20_000
MOST_AT_FULL_EFFORT = 200
"""Moments before and after a buffer whose buffers are placed anew to get it lower, and the effort; with more buffers
each partial solution is more work, and fewer of them are looked at."""


@dataclass(frozen=True, kw_only=True)
class PackingProblem:
    """Buffers, the clearances between them, and the pairs that may be closer."""

    buffers: Sequence[Buffer]
    near: Neighbours
    choices: Sequence[Choice]

    def part(self, inside: Sequence[int], buffers: Sequence[Buffer]) -> PackingProblem:
        """The problem of some of these buffers alone, in the form given."""
        number = {index: position for position, index in enumerate(inside)}
        ways = [tuple(_renamed(way, number) for way in self.choices[index]) for index in self._choices_of(inside)]
        return PackingProblem(
            buffers=buffers, near=clearances(buffers), choices=[choice for choice in ways if any(choice)]
        )

    def solved_below(self, capacity: int, most_nodes: int) -> Feasibility:
        return decide(self.buffers, self.near, self.choices, capacity, most_nodes)

    def _choices_of(self, inside: Sequence[int]) -> list[int]:
        return sorted({number for index in inside for number in self._by_buffer.get(index, ())})

    @cached_property
    def _by_buffer(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for number, choice in enumerate(self.choices):
            for index in {index for way in choice for pair in way for index in pair}:
                found.setdefault(index, set()).add(number)
        return found


def _renamed(way: Distances, number: dict[int, int]) -> dict[tuple[int, int], int]:
    return {(number[a], number[b]): n for (a, b), n in way.items() if a in number and b in number}


def raised_bound(problem: PackingProblem, known: int, reached: int) -> int:
    """The bytes that are needed at least: what `known` says, or more where a few moments alone need more.

    reached: bytes of a solution.
    """
    begins = sorted({buffer.begin for buffer in problem.buffers})
    for width in BOUND_WIDTHS:
        for first, last in zip(begins, begins[width - 1 :], strict=False):
            if known >= reached:
                return known
            inside = [index for index, b in enumerate(problem.buffers) if b.begin <= last and first < b.end]
            buffers = [problem.buffers[index] for index in inside]
            if len(inside) <= MOST_TO_BOUND and sum(buffer.size for buffer in buffers) > known:
                known = _least(problem.part(inside, buffers), known, reached)
    return known


def _least(part: PackingProblem, known: int, reached: int) -> int:
    """The most that is proved of a few buffers: no capacity below it holds them."""
    impossible = known - 1
    possible = reached
    tried = known
    while impossible + 1 < possible:
        if part.solved_below(tried, BOUND_NODES).exhausted:
            impossible = tried
        else:
            possible = tried
        tried = (impossible + possible) // 2
    return impossible + 1


def repaired(problem: PackingProblem, offsets: Sequence[int], capacity: int) -> list[int] | None:
    """Other offsets, all below a capacity; None where that was not found.

    Whatever ends above the capacity is placed anew together with what lives close to it; the rest stays where it is.
    """
    found = list(offsets)
    while high := {i for i, buffer in enumerate(problem.buffers) if found[i] + buffer.size > capacity}:
        first = min(high, key=lambda index: (problem.buffers[index].begin, index))
        last_tried = 0
        for free in (_around(problem.buffers, first, high, width) for width in REPAIR_WIDTHS):
            if (
                len(free) <= last_tried + (last_tried - MOST_TO_BOUND) // 4
            ):  # hardly more than what was in vain just now
                continue
            last_tried = len(free)
            if (anew := _placed_anew(problem, found, free, capacity)) is not None:
                found = anew
                break
        else:
            return None
    return found


def _around(buffers: Sequence[Buffer], first: int, high: set[int], width: int) -> list[int]:
    """Buffers that live within `width` moments of one, and all that are too high close to it."""
    begin, end = buffers[first].begin - width, buffers[first].end + width
    return [
        index for index, b in enumerate(buffers)
        if b.offset is None
        and ((begin <= b.begin and b.end <= end) or (index in high and b.begin < end and begin < b.end))
    ]  # fmt: skip


def _placed_anew(
    problem: PackingProblem, offsets: Sequence[int], free: Sequence[int], capacity: int
) -> list[int] | None:
    """The offsets with some buffers elsewhere, below a capacity; None where that was not found."""
    fixed = sorted({other for index in free for other in problem.near[index]} - set(free))
    buffers = [problem.buffers[index] for index in free]
    buffers += [replace(problem.buffers[index], offset=offsets[index]) for index in fixed]
    nodes = REPAIR_NODES * MOST_AT_FULL_EFFORT // max(MOST_AT_FULL_EFFORT, len(buffers))
    result = problem.part([*free, *fixed], buffers).solved_below(capacity, nodes)
    if result.offsets is None:
        return None
    moved = dict(zip(free, result.offsets, strict=False))
    return [moved.get(index, offset) for index, offset in enumerate(offsets)]
