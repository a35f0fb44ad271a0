"""Dynamic storage allocation as values: buffers with lifetimes, distances between buffers, and lower bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Time [begin, end) in a buffer's lifetime in which only its bytes [low, high) are in use; no bytes by default."""

    begin: int
    end: int
    low: int = 0
    high: int = 0


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A buffer of `size` bytes, live during [begin, end), at a multiple of `alignment`.

    offset: the required offset, or None. gaps: in order of time, without overlap.
    """

    begin: int
    end: int
    size: int
    alignment: int = 1
    offset: int | None = None
    gaps: tuple[Gap, ...] = ()

    def overlaps(self, other: Buffer) -> bool:
        """Return True if both buffers are live at some time."""
        return self.begin < other.end and other.begin < self.end

    def extents(self) -> list[Gap]:
        """Return the bytes in use over time: pieces of the lifetime, in order, without pieces that use no bytes."""
        pieces: list[Gap] = []
        time = self.begin
        for gap in self.gaps:
            pieces += [Gap(begin=time, end=gap.begin, high=self.size), gap]
            time = gap.end
        pieces.append(Gap(begin=time, end=self.end, high=self.size))
        return [piece for piece in pieces if piece.begin < piece.end and piece.low < piece.high]


Distances = Mapping[tuple[int, int], int]
"""(lower, upper) -> bytes between the begins of two buffers that may overlap partly."""

Choice = tuple[Distances, ...]
"""Alternative distances for pairs that may overlap; all pairs follow the same alternative."""


def clearance(lower: Buffer, upper: Buffer) -> int | None:
    """Return the least bytes from the begin of `lower` to that of `upper`; None if they are never in use at once."""
    if not lower.overlaps(upper):
        return None
    if not lower.gaps and not upper.gaps:
        return lower.size if lower.size and upper.size else None
    return _clearance(lower.extents(), upper.extents())


def _clearance(lower: Sequence[Gap], upper: Sequence[Gap]) -> int | None:
    """Return the largest distance that two buffers need at any time, from their pieces in order of time."""
    most: int | None = None
    i = j = 0
    while i < len(lower) and j < len(upper):
        a, b = lower[i], upper[j]
        if a.begin < b.end and b.begin < a.end:
            most = a.high - b.low if most is None else max(most, a.high - b.low)
        i, j = (i + 1, j) if a.end <= b.end else (i, j + 1)
    return most


def clearances(buffers: Sequence[Buffer]) -> list[dict[int, int]]:
    """Return the `clearance` of each buffer to every other buffer that is in use at the same time."""
    order = sorted(range(len(buffers)), key=lambda index: (buffers[index].begin, index))
    pieces = [buffer.extents() for buffer in buffers]
    near: list[dict[int, int]] = [{} for _ in buffers]
    alive: list[int] = []
    for index in order:
        alive = [other for other in alive if buffers[other].end > buffers[index].begin]
        for other in alive:
            above, below = (_clearance(pieces[a], pieces[b]) for a, b in ((index, other), (other, index)))
            if above is not None and below is not None:
                near[index][other], near[other][index] = above, below
        alive.append(index)
    return near


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """Return the most bytes in use at any time."""
    extents = [extent for buffer in buffers for extent in buffer.extents()]
    changes: dict[int, int] = {}
    for extent in extents:
        changes[extent.begin] = changes.get(extent.begin, 0) + extent.high - extent.low
        changes[extent.end] = changes.get(extent.end, 0) - extent.high + extent.low
    most = total = 0
    for time in sorted(changes):
        total += changes[time]
        most = max(most, total)
    return most


def height(buffers: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Return the end of the highest buffer."""
    return max((offset + buffer.size for buffer, offset in zip(buffers, offsets, strict=True)), default=0)
