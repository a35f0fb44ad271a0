"""Offsets for buffers with lifetimes, so that buffers alive together don't overlap: dynamic storage allocation.

First fit reaches the lower bound on most programs. Where it does not, the exact search looks between bound and what
was found, and says whether anything lower exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.arena.exact import place_below
from codegen_c.arena.first_fit import first_fit, improve
from codegen_c.arena.problem import Buffer, Choice, Distances, clearances, height, lower_bound
from tvm_ext.core.errors import PlanRejected

__all__ = ["Buffer", "Choice", "Distances", "Solution", "height", "lower_bound", "optimise", "solve"]

MOST_NODES = 60_000
"""Partial solutions that the search below the bound may look at; fewer where each of them is much work."""

LATER_NODES = MOST_NODES // 3
"""The same for each of the heights above the bound."""

WINDOWS = (1, 2, 4)
MOST_IN_WINDOW = 24
WINDOW_NODES = 2_000
"""Where a search gives up: moments in a row whose buffers are searched alone, how many those may be, and the effort."""

MOST_SEARCHES = 64
MOST_UNDECIDED = 8
"""Ways to take the choices that such a search may go through, and how many of them without an answer."""


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
    """Offsets as low as they were found. The same problem gives the same offsets.

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
    offsets, known = _bisect(buffers, near, choices, best.offsets, least)
    if known < height(buffers, offsets):
        better = improve(buffers, near, choices, known, best)
        offsets = min(offsets, better.offsets, key=lambda found: height(buffers, found))
    return Solution(offsets=offsets, num_bytes=height(buffers, offsets), lower_bound_bytes=known)


def _bisect(
    buffers: Sequence[Buffer],
    near: Sequence[Mapping[int, int]],
    choices: Sequence[Choice],
    offsets: list[int],
    known: int,
) -> tuple[list[int], int]:
    """Lower offsets if there are, and the bytes that are needed at least. First at the bound itself, then between."""
    work = len(buffers) + 20 * sum(map(len, near)) // len(buffers)
    worth, capacity, most_nodes = known, known, MOST_NODES
    while worth < height(buffers, offsets):
        found, exhausted = _search(buffers, near, choices, capacity, most_nodes * 1000 // max(1000, work))
        most_nodes = LATER_NODES
        if found is not None:
            offsets = found
        else:
            known = capacity + 1 if exhausted else known
            worth = capacity + 1
        capacity = (worth + height(buffers, offsets) - 1) // 2
    return offsets, known


def _search(
    buffers: Sequence[Buffer],
    near: Sequence[Mapping[int, int]],
    choices: Sequence[Choice],
    capacity: int,
    most_nodes: int,
) -> tuple[list[int] | None, bool]:
    """Offsets below a capacity, and without any, whether it is proved that there are none.

    Whatever a choice allows is allowed at first; where the offsets then fit none of its distances, each is tried.
    """
    undecided = 0
    open_cases: list[dict[int, int]] = [{}]
    for _ in range(MOST_SEARCHES):
        if not open_cases or undecided == MOST_UNDECIDED:
            return None, undecided == 0
        taken = open_cases.pop()
        distances = _allowed(near, choices, taken)
        outcome = place_below(buffers, distances, capacity, most_nodes)
        if outcome.offsets is None:
            if not outcome.exhausted and not (undecided == 0 and _is_stuck(buffers, distances, capacity)):
                undecided += 1
            continue
        broken = next((i for i in range(len(choices)) if not _fits(choices[i], near, outcome.offsets)), None)
        if broken is None:
            return list(outcome.offsets), False
        if broken in taken:
            return None, False
        open_cases += [{**taken, broken: index} for index in reversed(range(len(choices[broken])))]
    return None, False


def _is_stuck(buffers: Sequence[Buffer], distances: Distances, capacity: int) -> bool:
    """Whether some buffers that live close together are proved not to fit: few, where a search of all finds no end."""
    begins = sorted({buffer.begin for buffer in buffers})
    for width in WINDOWS:
        for first, last in zip(begins, begins[width - 1 :], strict=False):
            inside = [index for index, b in enumerate(buffers) if b.begin <= last and first < b.end]
            part = [buffers[index] for index in inside]
            if len(part) > MOST_IN_WINDOW or sum(buffer.size for buffer in part) <= capacity:
                continue
            number = {index: position for position, index in enumerate(inside)}
            near = {(number[a], number[b]): n for (a, b), n in distances.items() if a in number and b in number}
            if place_below(part, near, capacity, WINDOW_NODES).exhausted:
                return True
    return False


def _allowed(near: Sequence[Mapping[int, int]], choices: Sequence[Choice], taken: Mapping[int, int]) -> Distances:
    """For each pair the least that the distances still open to it ask for."""
    allowed: dict[tuple[int, int], int] = {}
    for number, choice in enumerate(choices):
        ways = [choice[taken[number]]] if number in taken else choice
        for lower, upper in {pair for way in ways for pair in way}:
            if upper in near[lower]:
                allowed[lower, upper] = min(way.get((lower, upper), near[lower][upper]) for way in ways)
    return allowed


def _fits(choice: Choice, near: Sequence[Mapping[int, int]], offsets: Sequence[int]) -> bool:
    """Whether all pairs of a choice keep the distances of one of its ways."""
    pairs = {pair for way in choice for pair in way}
    pairs = {(a, b) for a, b in pairs if b in near[a]}
    return any(all(_apart(a, b, way, near, offsets) for a, b in pairs) for way in choice)


def _apart(a: int, b: int, way: Distances, near: Sequence[Mapping[int, int]], offsets: Sequence[int]) -> bool:
    above, below = way.get((a, b), near[a][b]), way.get((b, a), near[b][a])
    return offsets[a] + above <= offsets[b] or offsets[b] + below <= offsets[a]


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
