"""Find offsets for buffers with lifetimes: first fit over several orders, then a search among orders.

First fit reaches the lower bound on most programs. Where it does not, a few steps alone may prove a higher bound, a
repair moves buffers that end too high together with their neighbours, and an exact search closes the rest of the gap.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType

import numpy as np

from codegen_c.arena.exact import PackingProblem, raised_bound, repaired
from codegen_c.arena.problem import Buffer, Choice, Distances, clearances, height, lower_bound
from tvm_ext.core.errors import PlanRejected

__all__ = ["Buffer", "Choice", "Solution", "height", "lower_bound", "optimise", "solve"]

MOST_NODES = 60_000
"""Most partial solutions that the search at the bound may visit; fewer for large problems, where each takes longer."""

LATER_NODES = MOST_NODES // 3
"""Most partial solutions that the search may visit at each height above the bound."""

UNPROVED_PARTS = 1000
"""Stop after a search that gave up, once the result is within this fraction (1 / 1000) of the bound."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """Offset of each buffer, the height of the packing, and a lower bound of the height.

    proved: the height equals the bound, so no packing is lower.
    """

    offsets: list[int]
    num_bytes: int
    lower_bound_bytes: int

    @property
    def proved(self) -> bool:
        """True if no packing is lower."""
        return self.num_bytes == self.lower_bound_bytes


def solve(buffers: Sequence[Buffer], choices: Sequence[Choice] = (), bound: int | None = None) -> list[int]:
    """Return the offset of each buffer; see `optimise`."""
    return optimise(buffers, choices, bound).offsets


def optimise(buffers: Sequence[Buffer], choices: Sequence[Choice] = (), bound: int | None = None) -> Solution:
    """Return the lowest packing that the searches find. The same problem gives the same offsets.

    choices: pairs that may overlap partly. bound: a known lower bound of the height; by default the most live bytes at
    any step.
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
    """Return the lowest packing and the best bound of a bisection over heights, which begins at the bound itself."""
    # Estimated work per partial solution: larger problems get fewer of them.
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
    """Raise PlanRejected if two buffers with given offsets overlap while both are live."""
    closer = {pair for choice in choices for alternative in choice for pair in alternative}
    for i, buffer in enumerate(buffers):
        for j, above in near[i].items():
            other = buffers[j]
            if buffer.offset is None or other.offset is None or buffer.offset > other.offset or (i, j) in closer:
                continue
            if other.offset < buffer.offset + above and (buffer.offset < other.offset or i < j):
                raise PlanRejected(
                    f"buffers {i} ({buffer.size} B at {buffer.offset}) and {j} ({other.size} B at {other.offset}) are "
                    "in use at the same time, and their fixed offsets overlap. Move one of them."
                )


def optimise_at_once(
    buffers: Sequence[Buffer], pairs: np.ndarray, choices: Sequence[Choice], groups: Groups, bound: int
) -> Solution:
    """Return the lowest packing of buffers of several processors. The same problem gives the same offsets.

    buffers: every buffer counts as a whole while it is live, even where only some of its bytes are in use. pairs:
    bool[n, n], True for two buffers that may be live at once. choices: pairs that may overlap partly. groups:
    buffers that share bytes if they are placed together. bound: most live bytes at any step of one processor.
    """
    whole = [replace(buffer, gaps=()) for buffer in buffers]
    least = max([bound, *(buffer.offset + buffer.size for buffer in whole if buffer.offset is not None)])
    near = [
        {other: buffer.size for other in np.flatnonzero(row).tolist() if buffer.size and whole[other].size}
        for buffer, row in zip(whole, pairs, strict=True)
    ]
    alone: Groups = {}
    apart, together = (first_fit(whole, near, choices, least, some) for some in (alone, groups))
    best, chosen = (together, groups) if together.num_bytes < apart.num_bytes else (apart, alone)
    if best.num_bytes > least:
        best = improve(whole, near, choices, least, best, chosen)
    return Solution(offsets=best.offsets, num_bytes=best.num_bytes, lower_bound_bytes=least)


MOST_WORK = 2_000_000
"""Most comparisons of two buffers that the search among orders may make."""

Neighbours = Sequence[Mapping[int, int]]

Groups = Mapping[int, Sequence[tuple[int, int]]]
"""Buffers that are placed together: for the first of them, all with the distance of their begins from its own."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Offsets, the order in which first fit placed the buffers, and the index taken from each choice."""

    num_bytes: int
    offsets: list[int]
    order: list[int]
    taken: list[int]


def first_fit(
    buffers: Sequence[Buffer],
    near: Neighbours,
    choices: Sequence[Choice],
    bound: int,
    groups: Groups = MappingProxyType({}),
) -> Packing:
    """Return the lowest first-fit packing over several orders, or the first that reaches the bound.

    near: the result of `clearances`.
    """
    best: Packing | None = None
    later = {member for members in groups.values() for member, _ in members} - {*groups}
    for whole in _orders(buffers):
        order = [index for index in whole if index not in later]
        for taken in ([0] * len(choices), [index % len(choice) for index, choice in enumerate(choices)]):
            attempt = _attempt(buffers, near, choices, order, taken, groups)
            if best is None or attempt.num_bytes < best.num_bytes:
                best = attempt
            if best.num_bytes <= bound:
                return best
    assert best is not None, "there are several orders"
    return best


def improve(
    buffers: Sequence[Buffer],
    near: Neighbours,
    choices: Sequence[Choice],
    bound: int,
    best: Packing,
    groups: Groups = MappingProxyType({}),
) -> Packing:
    """Improve a packing by local search: move a buffer in the order or change a choice, and keep it unless higher.

    The generator has a fixed seed, so that the same problem gives the same packing.
    """
    rng = random.Random(0)
    work = max(1, sum(map(len, near)))
    for _ in range(min(1000, MOST_WORK // work) if len(best.order) > 1 else 0):
        if best.num_bytes <= bound:
            break
        order, taken = list(best.order), list(best.taken)
        if choices and rng.random() < 0.5:
            index = rng.randrange(len(choices))
            taken[index] = (taken[index] + 1) % len(choices[index])
        else:
            order.insert(rng.randrange(len(order)), order.pop(rng.randrange(len(order))))
        attempt = _attempt(buffers, near, choices, order, taken, groups)
        if attempt.num_bytes <= best.num_bytes:
            best = attempt
    return best


def _attempt(
    buffers: Sequence[Buffer],
    near: Neighbours,
    choices: Sequence[Choice],
    order: list[int],
    taken: list[int],
    groups: Groups,
) -> Packing:
    """Pack the buffers by first fit in the given order, with the given alternative of each choice."""
    closer = {pair: n for choice, index in zip(choices, taken, strict=True) for pair, n in choice[index].items()}
    offsets = _place(buffers, near, closer, order, groups)
    return Packing(num_bytes=height(buffers, offsets), offsets=offsets, order=order, taken=taken)


def _orders(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Return the orders to try: by size, lifetime, area, begin, end, and the most live bytes in a lifetime."""
    indices = range(len(buffers))
    pressure = _pressures(buffers)

    def keys(i: int) -> tuple[tuple[int, ...], ...]:
        b = buffers[i]
        length = b.end - b.begin
        return (
            (-b.size, b.begin, i),
            (-length, -b.size, i),
            (-b.size * length, b.begin, i),
            (b.begin, -b.size, i),
            (-b.end, -b.size, i),
            (-pressure[i], -b.size, b.begin, i),
        )

    ranked = [keys(i) for i in indices]
    return [sorted(indices, key=lambda i: ranked[i][number]) for number in range(6)]


def _pressures(buffers: Sequence[Buffer]) -> list[int]:
    """Return the most live bytes during the lifetime of each buffer; the size of a buffer that is never live."""
    # Live bytes grow only where a buffer begins, so the peak is at one of these times.
    times = sorted({buffer.begin for buffer in buffers})
    position = {time: index for index, time in enumerate(times)}
    spans = [(position[buffer.begin], bisect_left(times, buffer.end)) for buffer in buffers]
    changes = [0] * (len(times) + 1)
    for buffer, (first, last) in zip(buffers, spans, strict=True):
        if first < last:
            changes[first] += buffer.size
            changes[last] -= buffer.size
    # levels[k][i]: most live bytes in times[i] to times[i + 2**k - 1].
    levels = [list(accumulate(changes[:-1]))]
    while len(levels[-1]) > 1 << (len(levels) - 1):
        known, width = levels[-1], 1 << (len(levels) - 1)
        levels.append([max(pair) for pair in zip(known, known[width:], strict=False)])

    def most(first: int, last: int) -> int:
        level = (last - first).bit_length() - 1
        return max(levels[level][first], levels[level][last - (1 << level)])

    return [
        most(first, last) if first < last else buffer.size for buffer, (first, last) in zip(buffers, spans, strict=True)
    ]


def _place(
    buffers: Sequence[Buffer], near: Neighbours, closer: Distances, order: Sequence[int], groups: Groups
) -> list[int]:
    """Place each buffer of the order at the lowest free offset, with the buffers of its group, and return all offsets.

    Fixed buffers, and neighbours that are earlier in the order, are already placed.
    """
    offsets = [-1 if buffer.offset is None else buffer.offset for buffer in buffers]
    for index in order:
        if buffers[index].offset is not None:
            continue
        members = groups.get(index, ((index, 0),))
        alignment = buffers[index].alignment
        forbidden = sorted(
            (
                offsets[j] - closer.get((member, j), below) - ahead,
                offsets[j] + closer.get((j, member), near[j][member]) - ahead,
            )
            for member, ahead in members
            for j, below in near[member].items()
            if offsets[j] >= 0
        )
        offset = max(-ahead for _, ahead in members)  # the lowest member begins at 0
        for low, high in forbidden:  # open intervals, ascending
            if offset <= low:
                break
            if offset < high:
                offset = -(-high // alignment) * alignment
        for member, ahead in members:
            offsets[member] = offset + ahead
    return offsets
