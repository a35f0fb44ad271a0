"""Offsets below a capacity by complete search: found, or proved not to exist, or given up after a number of steps.

The search (exact.c) is compiled when it is first asked for. After canonical placements, cross-section inference,
dominance and decomposition as published by Moffitt (MiniMalloc, ASPLOS 2023, doi 10.1145/3623278.3624752), carried over
to distances between buffers that may overlap. Several orders of trying take turns, each turn longer than the last,
so that no order that is bad for a problem keeps a good one waiting. Where they give up, beam searches (exact_beam.c)
may follow, which find offsets at capacities that leave hardly any byte free, but prove nothing where they don't.
"""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codegen_c.arena.problem import Buffer, Distances, clearances
from tvm_ext.core.compiled_search import compiled_search, starts

ORDERS = ("WAT", "TAW", "TWA", "ATW", "ZTW")
"""Keys that rank open buffers at one offset, in turn: W width in time, A area, T bytes open beside them, Z size."""

BEAMS = ((60, 6500), (120, 1300), (60, 1300))
"""Beam searches in turn: partial solutions that go on at each level, and how far their scores are disturbed, in
65536ths. The order was chosen on MiniMalloc's D and J, which the third and the second solve at their bounds. Of thirty
in turn two solve D (0.5 s of CPU a try) and two J (2 s): a problem like them takes about fifteen tries, not three."""

MOST_BUFFERS = 2000
_LARGEST = 2**48
"""Bytes and moments above this are left to others, so that sums of them fit into 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """offsets: of each buffer, None where none were found. exhausted: there are none at all below the capacity."""

    offsets: tuple[int, ...] | None = None
    exhausted: bool = False


class _Problem(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_int32),
        ("num_sections", ctypes.c_int32),
        ("capacity", ctypes.c_int64),
        *(
            (name, ctypes.c_void_p)
            for name in (
                "begin end size alignment fixed width area twin unordered first_neighbour neighbour distance shared "
                "first_use used_section used_bytes first_member member load"
            ).split()
        ),
    )


def place_below(
    buffers: Sequence[Buffer], distances: Distances, capacity: int, most_nodes: int, beams: int = 0
) -> Outcome:
    """Offsets with which no buffer ends above `capacity`, or the proof that there are none.

    distances: pairs that may be closer than their sizes say. most_nodes: partial solutions to look at in all; the same
    number gives the same outcome everywhere. beams: beam searches that follow without an answer, to find offsets only.
    Without a C compiler, or for very large problems, nothing is found.
    """
    zero = tuple(buffer.offset or 0 for buffer in buffers)
    used = [index for index, buffer in enumerate(buffers) if buffer.extents()]
    if any(buffer.offset is not None and buffer.offset + buffer.size > capacity for buffer in buffers):
        return Outcome(exhausted=True)
    if not used:
        return Outcome(offsets=zero)
    too_large = any(b.size + (b.offset or 0) + abs(b.begin) + abs(b.end) > _LARGEST for b in buffers)
    if len(used) > MOST_BUFFERS or too_large or capacity > _LARGEST or not is_available():
        return Outcome()
    used.sort(key=lambda index: (buffers[index].begin, buffers[index].end, index))
    position = {index: number for number, index in enumerate(used)}
    known = {(position[a], position[b]): n for (a, b), n in distances.items() if a in position and b in position}
    tables = _tables([buffers[index] for index in used], known)
    offsets = np.zeros(len(used), np.int64)
    turn = 2 * len(used)
    while most_nodes > 0:
        for keys in ORDERS:
            result = _run(tables.arrays, capacity, keys, min(turn, max(0, most_nodes)), offsets)
            most_nodes -= turn
            if result == 1:
                return _with_others(used, offsets, zero)
            if result == 0:
                return Outcome(exhausted=tables.complete)
        turn *= 2
    for seed in range(beams):
        if _beam(tables.arrays, capacity, seed, offsets) == 1:
            return _with_others(used, offsets, zero)
    return Outcome()


def _with_others(used: Sequence[int], offsets: NDArray[np.int64], zero: Sequence[int]) -> Outcome:
    """Offsets of buffers that were placed, between those of the others."""
    found = dict(zip(used, offsets.tolist(), strict=True))
    return Outcome(offsets=tuple(found.get(index, offset) for index, offset in enumerate(zero)))


def is_available() -> bool:
    """True where there is a C compiler to build the search with."""
    return _library() is not None


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled search; None where no compiler is at hand."""
    return compiled_search([Path(__file__).with_name(name) for name in ("exact.c", "exact_place.c", "exact_beam.c")])


def _run(
    arrays: dict[str, NDArray[np.generic]], capacity: int, keys: str, nodes: int, offsets: NDArray[np.int64]
) -> int:
    library, problem = _called(arrays, capacity)
    target = ctypes.c_void_p(offsets.ctypes.data)
    return library.exact_offsets(ctypes.byref(problem), keys.encode(), ctypes.c_int64(nodes), target)


def _beam(arrays: dict[str, NDArray[np.generic]], capacity: int, seed: int, offsets: NDArray[np.int64]) -> int:
    library, problem = _called(arrays, capacity)
    width, noise = BEAMS[seed % len(BEAMS)]
    return library.beam_offsets(
        ctypes.byref(problem), ctypes.c_int32(width), ctypes.c_int32(noise), ctypes.c_uint64(seed),
        ctypes.c_void_p(offsets.ctypes.data),
    )  # fmt: skip


def _called(arrays: dict[str, NDArray[np.generic]], capacity: int) -> tuple[ctypes.CDLL, _Problem]:
    """The library, and a problem as its functions take it."""
    library = _library()
    assert library is not None, "asked before"
    pointers = {name: array.ctypes.data for name, array in arrays.items()}
    count, sections = len(arrays["begin"]), len(arrays["load"])
    return library, _Problem(count=count, num_sections=sections, capacity=capacity, **pointers)


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """A problem as exact.c reads it. complete: every solution is among those it looks at."""

    arrays: dict[str, NDArray[np.generic]]
    complete: bool


def _tables(buffers: Sequence[Buffer], distances: Distances) -> _Tables:
    count = len(buffers)
    grain = math.gcd(*(b.alignment for b in buffers), *(b.offset for b in buffers if b.offset is not None))
    taken = [-(-b.size // grain) * grain for b in buffers]  # what keeps the next one clear, at whatever alignment
    times = _moments(buffers)
    span = [(bisect_left(times, b.begin), bisect_left(times, b.end)) for b in buffers]
    near = [
        {j: -(-distances.get((i, j), free) // grain) * grain for j, free in beside.items()}
        for i, beside in enumerate(clearances(buffers))
    ]
    complete = all(n >= 0 for beside in near for n in beside.values())
    close = [any(n < taken[i] or near[j][i] < taken[j] for j, n in near[i].items()) for i in range(count)]
    shared = [
        {j: max(0, min(taken[j], taken[i] - n), min(taken[i], taken[j] - near[j][i])) for j, n in near[i].items()}
        for i in range(count)
    ]
    uses = [_uses(b, taken[i], times) for i, b in enumerate(buffers)]
    members: list[list[int]] = [[] for _ in times]
    load = [0] * len(times)
    slack = [0] * len(times)  # of the highest buffer, which may end at the capacity
    for i, used in enumerate(uses):
        for section, num_bytes in used.items():
            members[section].append(i)
            load[section] += num_bytes
            slack[section] = max(slack[section], taken[i] - buffers[i].size)
        for j, n in shared[i].items():
            if i < j and n and not buffers[i].gaps and not buffers[j].gaps:
                for section in range(max(span[i][0], span[j][0]), min(span[i][1], span[j][1])):
                    load[section] -= n
            elif buffers[i].gaps or buffers[j].gaps:
                shared[i][j] = 0  # what windows leave free is not counted in the first place
    width = [b.end - b.begin for b in buffers]
    rows: dict[str, tuple[list[int], type[np.generic]]] = {
        "begin": ([b for b, _ in span], np.int32),
        "end": ([e for _, e in span], np.int32),
        "size": ([b.size for b in buffers], np.int64),
        "alignment": ([b.alignment for b in buffers], np.int64),
        "fixed": ([-1 if b.offset is None else b.offset for b in buffers], np.int64),
        "width": (width, np.int64),
        "area": ([min(b.size * w, 2**62) for b, w in zip(buffers, width, strict=True)], np.int64),
        "twin": (_twins(buffers, close), np.int32),
        "unordered": ([int(c) for c in close], np.uint8),
        "first_neighbour": (starts(near), np.int32),
        "neighbour": ([j for beside in near for j in beside], np.int32),
        "distance": ([max(0, n) for beside in near for n in beside.values()], np.int64),
        "shared": ([n for beside in shared for n in beside.values()], np.int64),
        "first_use": (starts(uses), np.int32),
        "used_section": ([section for used in uses for section in used], np.int32),
        "used_bytes": ([n for used in uses for n in used.values()], np.int64),
        "first_member": (starts(members), np.int32),
        "member": ([i for inside in members for i in inside], np.int32),
        "load": ([n - s for n, s in zip(load, slack, strict=True)], np.int64),
    }
    return _Tables(arrays={name: np.array(row, kind) for name, (row, kind) in rows.items()}, complete=complete)


def _moments(buffers: Sequence[Buffer]) -> list[int]:
    """Times at which what is in use is not just part of what is in use at another."""
    extents = [extent for buffer in buffers for extent in buffer.extents()]
    begins, ends = sorted({e.begin for e in extents}), sorted({e.end for e in extents})
    kept = [a for a, b in pairwise(begins) if bisect_left(ends, a + 1) < bisect_left(ends, b + 1)]
    return [*kept, begins[-1]]


def _uses(buffer: Buffer, taken: int, times: Sequence[int]) -> dict[int, int]:
    """Section -> bytes in use there."""
    return {
        section: min(extent.high - extent.low, taken) if buffer.gaps else taken
        for extent in buffer.extents()
        for section in range(bisect_left(times, extent.begin), bisect_left(times, extent.end))
    }


def _twins(buffers: Sequence[Buffer], close: Sequence[bool]) -> list[int]:
    """Index of an equal buffer before each one, or -1: which of both lies lower makes no difference."""
    last: dict[Buffer, int] = {}
    twins: list[int] = []
    for index, buffer in enumerate(buffers):
        free = buffer.offset is None and not close[index]
        twins.append(last.get(buffer, -1) if free else -1)
        if free:
            last[buffer] = index
    return twins
