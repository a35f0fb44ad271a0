"""Exact search for offsets within a capacity: finds a plan, or proves that there is none."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice, pairwise, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from codegen_c.arena.problem import Buffer, Choice, Distances, clearances
from tvm_ext.core.compiled_search import compiled_search, starts

BOUND_WIDTHS = (1, 2, 4)
MOST_TO_BOUND = 24
BOUND_NODES = 2_000
"""Limits of a search for a higher bound: numbers of consecutive moments, most buffers, and most nodes."""

REPAIR_WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REPAIR_NODES = 20_000
MOST_AT_FULL_EFFORT = 200
"""Moments around a buffer in which a repair moves buffers, and most nodes of its search.

With more buffers than MOST_AT_FULL_EFFORT each node takes longer, so fewer nodes are visited.
"""


@dataclass(frozen=True, kw_only=True)
class PackingProblem:
    """Buffers, the clearances between them, and pairs that may be closer than their clearance."""

    buffers: Sequence[Buffer]
    near: Neighbours
    choices: Sequence[Choice]

    def part(self, inside: Sequence[int], buffers: Sequence[Buffer]) -> PackingProblem:
        """Return the problem of the buffers with the indices `inside`, which are given as `buffers`."""
        number = {index: position for position, index in enumerate(inside)}
        choices = [tuple(_renamed(one, number) for one in self.choices[index]) for index in self._choices_of(inside)]
        return PackingProblem(
            buffers=buffers, near=clearances(buffers), choices=[choice for choice in choices if any(choice)]
        )

    def solved_below(self, capacity: int, most_nodes: int) -> Feasibility:
        """Search for offsets below a capacity; see `decide`."""
        return decide(self.buffers, self.near, self.choices, capacity, most_nodes)

    def _choices_of(self, inside: Sequence[int]) -> list[int]:
        return sorted({number for index in inside for number in self._by_buffer.get(index, ())})

    @cached_property
    def _by_buffer(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for number, choice in enumerate(self.choices):
            for index in {index for alternative in choice for pair in alternative for index in pair}:
                found.setdefault(index, set()).add(number)
        return found


def _renamed(alternative: Distances, number: dict[int, int]) -> dict[tuple[int, int], int]:
    return {(number[a], number[b]): n for (a, b), n in alternative.items() if a in number and b in number}


def raised_bound(problem: PackingProblem, known: int, reached: int) -> int:
    """Return a lower bound of the bytes that are needed: `known`, or more if the buffers of a few moments need more.

    reached: bytes of a known solution.
    """
    for width in BOUND_WIDTHS:
        for inside in _windows(problem.buffers, width):
            if known >= reached:
                return known
            buffers = [problem.buffers[index] for index in inside]
            if len(inside) <= MOST_TO_BOUND and sum(buffer.size for buffer in buffers) > known:
                known = _least(problem.part(inside, buffers), known, reached)
    return known


def _windows(buffers: Sequence[Buffer], width: int) -> Iterator[list[int]]:
    """Yield the buffers that are live in each window of `width` consecutive moments at which buffers begin."""
    begins = sorted({buffer.begin for buffer in buffers})
    coming = deque(sorted(range(len(buffers)), key=lambda index: buffers[index].begin))
    alive: list[int] = []
    for first, last in zip(begins, begins[width - 1 :], strict=False):
        alive = [index for index in alive if first < buffers[index].end]
        while coming and buffers[coming[0]].begin <= last:
            alive.append(coming.popleft())
        yield sorted(index for index in alive if first < buffers[index].end)


def _least(part: PackingProblem, known: int, reached: int) -> int:
    """Return the highest bound that is proved for a few buffers: no lower capacity holds them."""
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
    """Return other offsets with all buffers below a capacity, or None if the search finds none.

    Buffers that end above the capacity are placed again, together with buffers that are live at about the same time.
    All other buffers keep their offsets.
    """
    found, buffers = list(offsets), problem.buffers
    by_begin = sorted(range(len(buffers)), key=lambda index: (buffers[index].begin, index))
    # Ordered by begin, so that the first is the next to place. A repair never puts a buffer above the capacity.
    high = {index: None for index in by_begin if found[index] + buffers[index].size > capacity}
    while high:
        first, last_tried = next(iter(high)), 0
        for free in (_around(buffers, by_begin, first, high, width) for width in REPAIR_WIDTHS):
            # Skip a set that is hardly larger than the set that was just tried without success.
            if len(free) <= last_tried + (last_tried - MOST_TO_BOUND) // 4:
                continue
            last_tried = len(free)
            if (moved := _placed_again(problem, found, free, capacity)) is not None:
                for index, offset in moved.items():
                    found[index] = offset
                    high.pop(index, None)
                break
        else:
            return None
    return found


def _around(
    buffers: Sequence[Buffer], by_begin: Sequence[int], first: int, high: Iterable[int], width: int
) -> list[int]:
    """Return buffers that live within `width` moments of buffer `first`, and live buffers of `high` near it.

    by_begin: all buffers, ordered by begin. high: also ordered by begin, and `first` is the first of them.
    """
    begin, end = buffers[first].begin - width, buffers[first].end + width
    low = bisect_left(by_begin, begin, key=lambda index: buffers[index].begin)
    inside = takewhile(lambda index: buffers[index].begin <= end, islice(by_begin, low, None))
    within = {index for index in inside if buffers[index].end <= end}
    near = takewhile(lambda index: buffers[index].begin < end, high)
    within |= {index for index in near if begin < buffers[index].end}
    return sorted(index for index in within if buffers[index].offset is None)


def _placed_again(
    problem: PackingProblem, offsets: Sequence[int], free: Sequence[int], capacity: int
) -> dict[int, int] | None:
    """Return offsets of the buffers of `free` below a capacity, or None if the search finds none."""
    fixed = sorted({other for index in free for other in problem.near[index]} - set(free))
    buffers = [problem.buffers[index] for index in free]
    buffers += [replace(problem.buffers[index], offset=offsets[index]) for index in fixed]
    nodes = REPAIR_NODES * MOST_AT_FULL_EFFORT // max(MOST_AT_FULL_EFFORT, len(buffers))
    result = problem.part([*free, *fixed], buffers).solved_below(capacity, nodes)
    return None if result.offsets is None else dict(zip(free, result.offsets, strict=False))


Neighbours = Sequence[Mapping[int, int]]

MOST_SEARCHES = 64
MOST_UNDECIDED = 8
"""Most combinations of choices that a search tries, and most of these that may end without a result."""


@dataclass(frozen=True, kw_only=True)
class Feasibility:
    """Result of a search below a capacity.

    offsets: the offsets, or None if the search found none. exhausted: True if it is proved that there are none.
    """

    offsets: list[int] | None = None
    exhausted: bool = False


def decide(
    buffers: Sequence[Buffer], near: Neighbours, choices: Sequence[Choice], capacity: int, most_nodes: int
) -> Feasibility:
    """Search completely for offsets below a capacity, with at most `most_nodes` nodes for each combination of choices.

    First all distances of all choices are allowed. If the resulting offsets break a choice, each of its alternatives is
    tried on its own.
    """
    undecided = 0
    open_cases: list[dict[int, int]] = [{}]
    for _ in range(MOST_SEARCHES):
        if not open_cases or undecided == MOST_UNDECIDED:
            return Feasibility(exhausted=undecided == 0)
        taken = open_cases.pop()
        outcome = place_below(buffers, _allowed(near, choices, taken), capacity, most_nodes)
        if outcome.offsets is None:
            undecided += not outcome.exhausted
            continue
        broken = next((i for i in range(len(choices)) if not _fits(choices[i], near, outcome.offsets)), None)
        if broken is None:
            return Feasibility(offsets=list(outcome.offsets))
        if broken in taken:
            return Feasibility()
        open_cases += [{**taken, broken: index} for index in reversed(range(len(choices[broken])))]
    return Feasibility()


def _allowed(near: Neighbours, choices: Sequence[Choice], taken: Mapping[int, int]) -> Distances:
    """Return the least distance of each pair under the alternatives of the choices that are still open."""
    allowed: dict[tuple[int, int], int] = {}
    for number, choice in enumerate(choices):
        alternatives = [choice[taken[number]]] if number in taken else choice
        for lower, upper in {pair for alternative in alternatives for pair in alternative}:
            if upper in near[lower]:
                allowed[lower, upper] = min(one.get((lower, upper), near[lower][upper]) for one in alternatives)
    return allowed


def _fits(choice: Choice, near: Neighbours, offsets: Sequence[int]) -> bool:
    """Return True if all pairs of a choice keep the distances of at least one of its alternatives."""
    pairs = {pair for alternative in choice for pair in alternative}
    pairs = {(a, b) for a, b in pairs if b in near[a]}
    return any(all(_apart(a, b, alternative, near, offsets) for a, b in pairs) for alternative in choice)


def _apart(a: int, b: int, alternative: Distances, near: Neighbours, offsets: Sequence[int]) -> bool:
    above, below = alternative.get((a, b), near[a][b]), alternative.get((b, a), near[b][a])
    return offsets[a] + above <= offsets[b] or offsets[b] + below <= offsets[a]


ORDERS = ("WAT", "TAW", "TWA", "ATW", "ZTW")
"""Orders of open buffers at one offset: W width in time, A area, T bytes live at the same time, Z size."""

BEAMS = ((60, 6500), (120, 1300), (60, 1300))
"""Beam searches, used in turn: beam width, and noise on the scores in 65536ths.

The order was chosen on the problems D and J of MiniMalloc, which the third and the second search solve at their bounds.
Of thirty searches, two solve D (0.5 s of CPU each) and two solve J (2 s each), so a similar problem takes about fifteen
tries instead of three.
"""

MOST_BUFFERS = 2000
_LARGEST = 2**48
"""Larger byte counts and times are not searched, so that their sums fit into 64 bits."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of the compiled search.

    offsets: offset of each buffer, or None if the search found none. exhausted: True if no offsets fit the capacity.
    """

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
    """Return offsets with which no buffer ends above `capacity`, or the proof that there are none.

    distances: pairs that may be closer than their sizes require. most_nodes: partial solutions to visit in all; the
    same number gives the same outcome on every machine. beams: beam searches to run if there is no result; they can
    find offsets but prove nothing.
    The outcome is empty without a C compiler, and for very large problems.
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
    # The orders take turns with a budget that doubles, because the best order differs from problem to problem and a
    # good order often needs few nodes.
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
    """Merge the offsets of the placed buffers with the offsets of buffers that use no bytes."""
    found = dict(zip(used, offsets.tolist(), strict=True))
    return Outcome(offsets=tuple(found.get(index, offset) for index, offset in enumerate(zero)))


def is_available() -> bool:
    """Return True if a C compiler can build the search."""
    return _library() is not None


@cache
def _library() -> ctypes.CDLL | None:
    """Return the compiled search, or None if no compiler is available."""
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
    """Return the library and a problem in the form that its functions take."""
    library = _library()
    assert library is not None, "is_available() is checked first"
    pointers = {name: array.ctypes.data for name, array in arrays.items()}
    count, sections = len(arrays["begin"]), len(arrays["load"])
    return library, _Problem(count=count, num_sections=sections, capacity=capacity, **pointers)


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """A problem in the form that exact.c reads. complete: True if the search covers every solution."""

    arrays: dict[str, NDArray[np.generic]]
    complete: bool


def _tables(buffers: Sequence[Buffer], distances: Distances) -> _Tables:
    """Return a problem as arrays for exact.c, and say if its offsets include every solution."""
    count = len(buffers)
    grain = math.gcd(*(b.alignment for b in buffers), *(b.offset for b in buffers if b.offset is not None))
    # All offsets are multiples of the grain, so a size rounded up to it loses no solution.
    taken = [-(-b.size // grain) * grain for b in buffers]
    times = _moments(buffers)
    span = [(bisect_left(times, b.begin), bisect_left(times, b.end)) for b in buffers]
    near = [
        {j: -(-distances.get((i, j), free) // grain) * grain for j, free in beside.items()}
        for i, beside in enumerate(clearances(buffers))
    ]
    complete = all(n >= 0 for beside in near for n in beside.values())
    # Buffers that may overlap partly are not interchangeable, so the search must not fix their order.
    close = [any(n < taken[i] or near[j][i] < taken[j] for j, n in near[i].items()) for i in range(count)]
    # Bytes that two buffers may share at most, so that live bytes at a time do not exceed the true bound.
    shared = [
        {j: max(0, min(taken[j], taken[i] - n), min(taken[i], taken[j] - near[j][i])) for j, n in near[i].items()}
        for i in range(count)
    ]
    uses = [_uses(b, taken[i], times) for i, b in enumerate(buffers)]
    members: list[list[int]] = [[] for _ in times]
    load = [0] * len(times)
    slack = [0] * len(times)  # rounding of the highest buffer, whose exact size may end at the capacity
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
                shared[i][j] = 0  # the load already excludes the bytes that gaps leave free
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
    """Return the times at which the set of live buffers is not a subset of the set at another time."""
    extents = [extent for buffer in buffers for extent in buffer.extents()]
    begins, ends = sorted({e.begin for e in extents}), sorted({e.end for e in extents})
    kept = [a for a, b in pairwise(begins) if bisect_left(ends, a + 1) < bisect_left(ends, b + 1)]
    return [*kept, begins[-1]]


def _uses(buffer: Buffer, taken: int, times: Sequence[int]) -> dict[int, int]:
    """Return the bytes in use in each section of time in which the buffer is live."""
    return {
        section: min(extent.high - extent.low, taken) if buffer.gaps else taken
        for extent in buffer.extents()
        for section in range(bisect_left(times, extent.begin), bisect_left(times, extent.end))
    }


def _twins(buffers: Sequence[Buffer], close: Sequence[bool]) -> list[int]:
    """Return the index of the previous equal buffer of each buffer, or -1.

    Swapping two equal buffers changes nothing, so the search needs only one order of the two.
    """
    last: dict[Buffer, int] = {}
    twins: list[int] = []
    for index, buffer in enumerate(buffers):
        free = buffer.offset is None and not close[index]
        twins.append(last.get(buffer, -1) if free else -1)
        if free:
            last[buffer] = index
    return twins
