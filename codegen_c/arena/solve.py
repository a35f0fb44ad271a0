"""Offsets for buffers with lifetimes, so that buffers alive together don't overlap: dynamic storage allocation.

Problem and solution are plain values. `solve` tries first fit over several orders and keeps the lowest result;
it stops early at the lower bound, which no allocation can beat.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MOST_WORK = 2_000_000
"""Comparisons of two buffers that a search may spend."""


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """`size` bytes during [begin, end), at a multiple of `alignment`."""

    begin: int
    end: int
    size: int
    alignment: int = 1

    def overlaps(self, other: Buffer) -> bool:
        """Whether both are alive at some time."""
        return self.begin < other.end and other.begin < self.end


Distances = Mapping[tuple[int, int], int]
"""(lower, upper) -> bytes between the begins of two buffers, where less than the lower one's size is enough."""

Choice = tuple[Distances, ...]
"""Distances of which one holds, for pairs that may overlap in one of several ways."""


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Most bytes alive at one time."""
    starts = {buffer.begin for buffer in buffers}
    return max((sum(b.size for b in buffers if b.begin <= time < b.end) for time in starts), default=0)


def height(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """End of the highest buffer."""
    return max((offset + buffer.size for buffer, offset in zip(buffers, offsets, strict=True)), default=0)


def solve(buffers: Sequence[Buffer], choices: Sequence[Choice] = (), bound: int | None = None) -> list[int]:
    """Offset of each buffer. The same problem gives the same offsets.

    choices: pairs that may overlap partly. bound: what is known to be needed; by default the most bytes alive.
    """
    bound = lower_bound(buffers) if bound is None else bound
    neighbours = [
        [j for j, other in enumerate(buffers) if j != i and buffer.overlaps(other)] for i, buffer in enumerate(buffers)
    ]
    if not buffers:
        return []
    best: tuple[int, list[int], list[int], list[int]] | None = None
    for order in _orders(buffers):
        for taken in ([0] * len(choices), [index % len(choice) for index, choice in enumerate(choices)]):
            candidate = _first_fit(buffers, neighbours, _chosen(choices, taken), order)
            rank = height(buffers, candidate)
            if rank == bound:
                return candidate
            if best is None or rank < best[0]:
                best = (rank, candidate, order, taken)
    assert best is not None, "there are several orders"
    return _search(buffers, neighbours, choices, bound, best)


def _chosen(choices: Sequence[Choice], taken: Sequence[int]) -> dict[tuple[int, int], int]:
    return {pair: n for choice, index in zip(choices, taken, strict=True) for pair, n in choice[index].items()}


def _search(
    buffers: Sequence[Buffer],
    neighbours: Sequence[Sequence[int]],
    choices: Sequence[Choice],
    bound: int,
    start: tuple[int, list[int], list[int], list[int]],
) -> list[int]:
    """From the best simple start on: move a buffer within the order, or change a choice, while that is no worse."""
    rng = random.Random(0)
    rank, best, order, taken = start
    work = max(1, sum(map(len, neighbours)))
    for _ in range(min(1000, MOST_WORK // work) if len(buffers) > 1 else 0):
        if rank == bound:
            break
        new_order, new_taken = list(order), list(taken)
        if choices and rng.random() < 0.5:
            index = rng.randrange(len(choices))
            new_taken[index] = (new_taken[index] + 1) % len(choices[index])
        else:
            new_order.insert(rng.randrange(len(order)), new_order.pop(rng.randrange(len(order))))
        candidate = _first_fit(buffers, neighbours, _chosen(choices, new_taken), new_order)
        new_rank = height(buffers, candidate)
        if new_rank <= rank:
            order, taken, best, rank = new_order, new_taken, candidate, new_rank
    return best


def _orders(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Orders worth trying: by size, by lifetime, by area, by time, by how tight the buffer's tightest moment is."""
    indices = range(len(buffers))
    # What is alive only grows where a buffer begins: those are the moments that can be the tallest.
    alive = {time: sum(b.size for b in buffers if b.begin <= time < b.end) for time in {b.begin for b in buffers}}
    pressure = [max(alive[t] for t in alive if buffer.begin <= t < buffer.end) for buffer in buffers]

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
    return [sorted(indices, key=lambda i: ranked[i][number]) for number in range(len(ranked[0]) if ranked else 0)]


def _first_fit(
    buffers: Sequence[Buffer], neighbours: Sequence[Sequence[int]], closer: Distances, order: Sequence[int]
) -> list[int]:
    """Each buffer in turn at the lowest offset its neighbours placed before it leave free."""
    offsets = [-1] * len(buffers)
    for index in order:
        size, alignment = buffers[index].size, buffers[index].alignment
        forbidden = sorted(
            (offsets[j] - closer.get((index, j), size), offsets[j] + closer.get((j, index), buffers[j].size))
            for j in neighbours[index]
            if offsets[j] >= 0
        )
        offset = 0
        for low, high in forbidden:  # open intervals, ascending
            if offset <= low:
                break
            if offset < high:
                offset = -(-high // alignment) * alignment
        offsets[index] = offset
    return offsets
