"""An assignment to memories that a search changes item by item, and the time of its run.

`Problem` defines both. This file keeps their parts by item, so that trying another choice for a single item is cheap.
An item is the memory of a value, the copy of a step's weights, or the memory of a step's scratch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import numpy as np

from relay_passes.solvers.memories.assignment import Assignment, Place, WeightsCopy
from relay_passes.solvers.memories.problem import AssignmentProblem
from tvm_ext.core.alignment import aligned
from tvm_ext.core.time_model import CALL_CYCLES

Choice = Place | WeightsCopy | str | None
BLOCK = 16
"""Number of steps whose items are kept in a common set."""
MOST_MOVED = 8
"""Most items that may differ from the timeline before it is computed again."""


class Item(NamedTuple):
    """The subject of a choice: `value`, `weights` or `scratch`, and its number."""

    kind: Literal["value", "weights", "scratch"]
    index: int


class Score(NamedTuple):
    """Bytes over the limit of fast memories, then of the default memory, added up over steps, then predicted cycles.

    Less is better.
    """

    overflow: tuple[int, int]
    cycles: float


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of an item.

    bytes: of memories over steps.
    cycles: of steps.
    transfers: (start, due, cycles, by DMA).
    """

    bytes: tuple[tuple[str, int, int, int], ...]
    cycles: tuple[tuple[int, float], ...]
    transfers: tuple[tuple[int, int, float, bool], ...]


class State:
    """The current choices of all items, starting with everything in the default memory."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem = problem
        self.choices: dict[Item, Choice] = {}
        self.used = {
            memory: np.zeros(len(problem.steps), np.int64) for memory in (problem.default_memory, *problem.near)
        }
        self.cycles = [in_ticks(step.cycles) for step in problem.steps]
        self._current: dict[Item, Share] = {}
        self._starting: dict[int, list[Transfer]] = {}
        self._shared = {memory: np.zeros(len(problem.steps), np.int64) for memory in self.used}
        self._stale = {memory: np.ones(len(problem.steps), np.bool_) for memory in self.used}
        num_blocks = len(problem.steps) // BLOCK + 1
        self._items = {memory: [set[Item]() for _ in range(num_blocks)] for memory in self.used}
        self._moved: dict[Item, Choice] = {}  # since the timeline was settled, with the choice at that time
        self._known: dict[tuple[Item, Choice], Share] = {}
        start = problem.at_home()
        for value, place in enumerate(start.places):
            self._put(Item("value", value), place)
        for index, step in enumerate(problem.steps):
            if step.weights_bytes:
                self._put(Item("weights", index), None)
            if step.scratch_bytes:
                self._put(Item("scratch", index), problem.default_memory)
        self._timeline = Timeline(self.cycles, self._starting)

    def set(self, item: Item, choice: Choice) -> None:
        """Change the choice of an item."""
        if self.choices[item] != choice:
            if self._moved.setdefault(item, self.choices[item]) == choice:
                del self._moved[item]
            parts = self._current[item]
            self._add(parts, -1)
            for items in self._blocks(parts):
                items.discard(item)
            for start, *transfer in parts.transfers:
                self._starting[start].remove((transfer[0], item, transfer[1], transfer[2]))
            self._put(item, choice)

    def score(self) -> Score:
        return self.score_with(self.overflow())

    def score_with(self, overflow: tuple[int, int]) -> Score:
        """Return the score for a known overflow."""
        return Score(overflow, self._finish())

    def settle(self) -> None:
        """Compute the timeline for the current choices, from which later choices then differ only little."""
        self._timeline.settle(self._span()[0])
        self._moved.clear()

    def take(self, assignment: Assignment) -> None:
        """Take the choices of all items from an assignment."""
        for value, place in enumerate(assignment.places):
            self.set(Item("value", value), place)
        for item in list(self.choices):
            if item.kind == "weights":
                self.set(item, assignment.weights.get(item.index))
            elif item.kind == "scratch":
                self.set(item, assignment.scratch.get(item.index, self.problem.default_memory))
        self.settle()

    def begins(self) -> Sequence[float]:
        """Return when each step could start as the choices were last settled, and the end of the run, in cycles."""
        return self._timeline.begins

    def busy(self) -> float:
        """Return the cycles of all steps and of the copies by cores, which no other work hides."""
        copies = (cycles for some in self._starting.values() for _, _, cycles, is_dma in some if not is_dma)
        return sum(self.cycles) + sum(copies)

    def overflow(self) -> tuple[int, int]:
        """Return the overflow as `Problem.overflow` defines it."""
        return sum(self._overflow(memory) for memory in self.problem.near), self._overflow(self.problem.default_memory)

    def _overflow(self, memory: str) -> int:
        excess = self._excess(memory)
        return int(excess[excess > 0].sum())

    def crowded(self, memory: str) -> list[int]:
        """Return the steps in which a memory is too small."""
        return np.flatnonzero(self._excess(memory) > 0).tolist()

    def _excess(self, memory: str) -> np.ndarray:
        """Return the bytes by which a memory is too small in each step, negative where it is large enough."""
        over = self.used[memory] - self.problem.limits[memory]
        for step in np.flatnonzero((over > 0) & self._stale[memory]).tolist():
            together = range(*self.problem.span(step, step))
            self._shared[memory][step] = sum(self._newly_shared(one, memory) for one in together)
            self._stale[memory][step] = False
        return over - self._shared[memory]

    def items_at(self, memory: str, step: int) -> set[Item]:
        """Return the items that take bytes of a memory in a step."""
        return {
            item
            for item in self._items[memory][step // BLOCK]
            for at, begin, end, _ in self._current[item].bytes
            if begin <= step < end and at == memory
        }

    def assignment(self) -> Assignment:
        weights = {i.index: c for i, c in self.choices.items() if i.kind == "weights" and isinstance(c, WeightsCopy)}
        scratch = {i.index: c for i, c in self.choices.items() if i.kind == "scratch" and isinstance(c, str)}
        places = [self.choices[Item("value", value)] for value in range(len(self.problem.sizes))]
        return Assignment(
            places=tuple(place for place in places if isinstance(place, Place)), weights=weights, scratch=scratch
        )

    def _put(self, item: Item, choice: Choice) -> None:
        """Add the share of an item that has none yet."""
        parts = self.share(item, choice)
        self._add(parts, 1)
        self.choices[item], self._current[item] = choice, parts
        for start, due, cycles, is_dma in parts.transfers:
            self._starting.setdefault(start, []).append((due, item, cycles, is_dma))
        for items in self._blocks(parts):
            items.add(item)
        if item.kind == "value":  # the bytes that its steps share have to be computed again
            touched = [*self.problem.uses[item.index], *self._maker(item.index)]
            together = [step for one in touched for step in range(*self.problem.span(one, one))]
            for stale in self._stale.values():
                stale[together] = True

    def _add(self, parts: Share, sign: int) -> None:
        for memory, begin, end, bytes_ in parts.bytes:
            self.used[memory][begin:end] += sign * bytes_
        for step, cycles in parts.cycles:
            self.cycles[step] += sign * cycles

    def _blocks(self, parts: Share) -> Iterator[set[Item]]:
        """Yield the item sets of all blocks of steps in which a share takes bytes."""
        for memory, begin, end, _ in parts.bytes:
            yield from self._items[memory][begin // BLOCK : (end - 1) // BLOCK + 1]

    def share(self, item: Item, choice: Choice) -> Share:
        """Return the share that an item would have with a choice."""
        known = self._known.get((item, choice))
        if known is None:
            known = self._known[item, choice] = _in_ticks(self._new_share(item, choice))
        return known

    def _new_share(self, item: Item, choice: Choice) -> Share:
        problem, time, index = self.problem, self.problem.time, item.index
        if isinstance(choice, Place):
            uses, maker = problem.uses[index], problem.makers.get(index)
            cycles = [
                (use, problem.read_cycles(use, choice.memory_at(use, problem.default_memory), index)) for use in uses
            ]
            if maker is not None:
                cycles.append((maker, problem.write_cycles(maker, choice.born, index)))
            size = problem.sizes[index]
            return Share(
                bytes=tuple((m, b, e, aligned(size)) for m, b, e in problem.occupied(index, choice)),
                cycles=tuple(cycles),
                transfers=tuple(
                    (m.start, m.due, problem.transfer_cycles(m), time.has_dma(m.source, m.target))
                    for m in problem.moves_of(index, choice)
                ),
            )
        step = problem.steps[index]
        if item.kind == "weights":
            at = choice.memory if isinstance(choice, WeightsCopy) else problem.stored
            cycles = ((index, problem.weights_cycles(index, at)),) if step.weights_read_bytes else ()
            if not isinstance(choice, WeightsCopy):
                return Share(bytes=(), cycles=cycles, transfers=())
            moving = time.transfer_cycles(problem.stored, at, step.weights_bytes), time.has_dma(problem.stored, at)
            return Share(
                bytes=((at, *problem.weights_span(index, choice), aligned(step.weights_bytes)),),
                cycles=cycles,
                transfers=((choice.start, problem.boundary_to(index), *moving),),
            )
        assert isinstance(choice, str), "scratch lies in a memory"
        cycles = ((index, problem.scratch_cycles(index, choice)),) if step.scratch_access_bytes else ()
        span = problem.span(index, index)
        return Share(bytes=((choice, *span, aligned(step.scratch_bytes)),), cycles=cycles, transfers=())

    def _maker(self, value: int) -> tuple[int, ...]:
        """Return the step that writes a value, or nothing for an input."""
        return (self.problem.makers[value],) if value in self.problem.makers else ()

    def _newly_shared(self, index: int, memory: str) -> int:
        """Return the bytes that a step's result shares with a value whose copy is last read there, as in `Problem`."""
        step = self.problem.steps[index]
        if not step.shared or all(self._place(value).born != memory for value in step.writes):
            return 0
        dying = [
            saved for value, saved in step.shared.items() if self.problem.dies(value, self._place(value), index, memory)
        ]
        return max(dying, default=0)

    def _place(self, value: int) -> Place:
        place = self.choices[Item("value", value)]
        assert isinstance(place, Place), "values have places"
        return place

    def _finish(self) -> float:
        """Return `finish_cycles` of the run without creating its events."""
        if len(self._moved) > MOST_MOVED:
            self.settle()
        return self._timeline.finish(*self._span())

    def _span(self) -> tuple[int, int]:
        """Return the first and the last step that differ from the timeline.

        The last is smaller than the first for none.
        """
        first, last = len(self.cycles), -1
        for item, before in self._moved.items():
            one, other = self.share(item, before), self._current[item]
            for step, _ in {*one.cycles} ^ {*other.cycles}:
                first, last = min(first, step), max(last, step)
            for start, due, *_ in {*one.transfers} ^ {*other.transfers}:
                first, last = min(first, start), max(last, due)
        return first, last


def _in_ticks(share: Share) -> Share:
    """Return the share with cycles in multiples of a tick."""
    return Share(
        bytes=share.bytes,
        cycles=tuple((step, in_ticks(cycles)) for step, cycles in share.cycles),
        transfers=tuple((start, due, in_ticks(cycles), is_dma) for start, due, cycles, is_dma in share.transfers),
    )


TICK = 2.0**-10
"""Unit of cycles. Sums of multiples of this power of two are exact, so they do not depend on the order of changes."""

Transfer = tuple[int, tuple[object, ...], float, bool]
"""The step ahead of which the transfer is awaited, a sort key among transfers of a step, its cycles, whether by DMA."""
Waits = dict[int, list[tuple[int, float]]]
"""Transfers under way, as (start step, end), by the step ahead of which they are awaited."""


def in_ticks(cycles: float) -> float:
    """Return the nearest multiple of a tick."""
    return round(cycles / TICK) * TICK


class Timeline:
    """A run as it was last timed.

    cycles: of each step.
    starting: transfers by the step ahead of which they start.
    """

    def __init__(self, cycles: Sequence[float], starting: Mapping[int, Sequence[Transfer]]) -> None:
        self.cycles, self.starting = cycles, starting
        self._now = [0.0] * (len(cycles) + 1)
        self._dma_free = [0.0] * (len(cycles) + 1)
        self._waits: Waits = {}
        self._open: list[list[int]] = [[] for _ in cycles]
        self.settle(0)

    @property
    def begins(self) -> Sequence[float]:
        """The cycle at which each step could start when the run was last timed, and its end."""
        return self._now

    def settle(self, first: int) -> None:
        """Time all steps from `first` on, and keep the result."""
        if first >= len(self.cycles):
            return
        now, dma_free, under_way = self._now[first], self._dma_free[first], self._open[first]
        waits = {due: kept for due, ends in self._waits.items() if (kept := [one for one in ends if one[0] < first])}
        for index in range(first, len(self.cycles)):
            self._now[index], self._dma_free[index] = now, dma_free
            self._open[index] = under_way = [due for due in under_way if due >= index]
            known = len(waits)
            now, dma_free = self._step(index, now, dma_free, waits, waits.get(index, ()))
            if len(waits) > known:
                under_way = [*under_way, *islice(waits, known, None)]
        self._now[-1], self._waits = now, waits

    def finish(self, first: int, last: int) -> float:
        """Return the cycle at which the run ends, where only steps `first` to `last` differ from the kept timeline."""
        if first > last:
            return self._now[-1]
        now, dma_free = self._now[first], self._dma_free[first]
        waits: Waits = {}
        look = last + 1
        for index in range(first, len(self.cycles)):
            if index == look:
                if (later := self._shift(index, first, now, waits)) is not None:
                    return self._now[-1] + later
                look += look - last
            ends = waits.get(index, ())
            if index in self._waits:
                ends = [*(one for one in self._waits[index] if one[0] < first), *ends]
            now, dma_free = self._step(index, now, dma_free, waits, ends)
        return now

    def _step(
        self, index: int, now: float, dma_free: float, waits: Waits, ends: Sequence[tuple[int, float]]
    ) -> tuple[float, float]:
        """Run a step with its transfers, and return the times after it.

        The order is: waits that are due, starts of transfers, waits for transfers that are due at once, the step.
        """
        for _, end in ends:
            now = max(now + CALL_CYCLES, end)
        starting = self.starting.get(index)
        if starting:
            at_once: list[float] = []
            for due, _, moving, is_dma in sorted(starting):
                if not is_dma:
                    now += moving
                    continue
                now += CALL_CYCLES
                dma_free = max(now, dma_free) + moving
                if due > index:
                    waits.setdefault(due, []).append((index, dma_free))
                else:
                    at_once.append(dma_free)
            for end in at_once:
                now = max(now + CALL_CYCLES, end)
        return now + self.cycles[index], dma_free

    def _shift(self, index: int, first: int, now: float, waits: Waits) -> float | None:
        """Return the cycles by which everything from a step on is later than kept, or None where the delays differ.

        first: the step from which on transfers were timed again. Earlier transfers keep their ends. A DMA that is still
        busy serves a transfer that is awaited later, so comparing the waits suffices.
        """
        later = now - self._now[index]
        for due in self._open[index]:
            held = [one for one in self._waits[due] if one[0] < index]
            own = [(start, end - later) for start, end in waits.get(due, ())]
            before = [one for one in held if one[0] < first]
            if (before and later) or held[len(before) :] != own:
                return None
        return None if any(due >= index and due not in self._open[index] for due in waits) else later
