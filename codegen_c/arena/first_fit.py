"""Offsets by first fit over several orders, and by search among orders: quick, valid, of no guaranteed height."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.arena.problem import Buffer, Choice, Distances, height

MOST_WORK = 2_000_000
"""Comparisons of two buffers that a search may spend."""

Neighbours = Sequence[Mapping[int, int]]


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Offsets, and what they came from: the order of placing, and which of each choice's distances holds."""

    num_bytes: int
    offsets: list[int]
    order: list[int]
    taken: list[int]


def first_fit(buffers: Sequence[Buffer], near: Neighbours, choices: Sequence[Choice], bound: int) -> Packing:
    """The lowest of several orders; the first one that reaches the bound. near: what `clearances` says of buffers."""
    best: Packing | None = None
    for order in _orders(buffers):
        for taken in ([0] * len(choices), [index % len(choice) for index, choice in enumerate(choices)]):
            attempt = _attempt(buffers, near, choices, order, taken)
            if best is None or attempt.num_bytes < best.num_bytes:
                best = attempt
            if best.num_bytes <= bound:
                return best
    assert best is not None, "there are several orders"
    return best


def improve(
    buffers: Sequence[Buffer], near: Neighbours, choices: Sequence[Choice], bound: int, best: Packing
) -> Packing:
    """Move a buffer within the order, or change a choice, again and again while that is no worse."""
    rng = random.Random(0)
    work = max(1, sum(map(len, near)))
    for _ in range(min(1000, MOST_WORK // work) if len(buffers) > 1 else 0):
        if best.num_bytes <= bound:
            break
        order, taken = list(best.order), list(best.taken)
        if choices and rng.random() < 0.5:
            index = rng.randrange(len(choices))
            taken[index] = (taken[index] + 1) % len(choices[index])
        else:
            order.insert(rng.randrange(len(order)), order.pop(rng.randrange(len(order))))
        attempt = _attempt(buffers, near, choices, order, taken)
        if attempt.num_bytes <= best.num_bytes:
            best = attempt
    return best


def _attempt(
    buffers: Sequence[Buffer], near: Neighbours, choices: Sequence[Choice], order: list[int], taken: list[int]
) -> Packing:
    closer = {pair: n for choice, index in zip(choices, taken, strict=True) for pair, n in choice[index].items()}
    offsets = _place(buffers, near, closer, order)
    return Packing(num_bytes=height(buffers, offsets), offsets=offsets, order=order, taken=taken)


def _orders(buffers: Sequence[Buffer]) -> list[list[int]]:
    """Orders worth trying: by size, by lifetime, by area, by time, by how tight the buffer's tightest moment is."""
    indices = range(len(buffers))
    # Live bytes only grow where a buffer begins: those are the moments that can be the tallest.
    alive = {time: sum(b.size for b in buffers if b.begin <= time < b.end) for time in {b.begin for b in buffers}}
    pressure = [
        max((alive[t] for t in alive if buffer.begin <= t < buffer.end), default=buffer.size) for buffer in buffers
    ]

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


def _place(buffers: Sequence[Buffer], near: Neighbours, closer: Distances, order: Sequence[int]) -> list[int]:
    """Each buffer in turn at the lowest offset that fixed buffers and neighbours placed before it leave free."""
    offsets = [-1 if buffer.offset is None else buffer.offset for buffer in buffers]
    for index in order:
        if buffers[index].offset is not None:
            continue
        alignment = buffers[index].alignment
        forbidden = sorted(
            (offsets[j] - closer.get((index, j), below), offsets[j] + closer.get((j, index), near[j][index]))
            for j, below in near[index].items()
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
