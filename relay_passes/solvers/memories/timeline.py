"""Time of a run of steps and transfers, kept so that a change of some of them costs little to time again.

A run is timed once and kept step by step. With other steps or transfers it is timed from the first one that differs, to
where all that follows comes as much sooner or later. So that this is exact, times are whole multiples of `TICK`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from tvm_ext.core.time_model import CALL_CYCLES

TICK = 2.0**-10
"""Cycles: sums of so many of them are exact."""

Transfer = tuple[int, tuple[object, ...], float, bool]
"""Step before which it is waited for, what orders those of one step, cycles, whether by a DMA."""
Waits = dict[int, list[tuple[int, float]]]
"""By the step before which they are waited for, transfers under way: the step before which they start, their end."""


def in_ticks(cycles: float) -> float:
    """The nearest multiple of a tick."""
    return round(cycles / TICK) * TICK


class Timeline:
    """A run as it was last timed. cycles: of each step. starting: transfers by the step that they start before."""

    def __init__(self, cycles: Sequence[float], starting: Mapping[int, Sequence[Transfer]]) -> None:
        self.cycles, self.starting = cycles, starting
        self._now = [0.0] * (len(cycles) + 1)
        self._dma_free = [0.0] * (len(cycles) + 1)
        self._waits: Waits = {}
        self._open: list[list[int]] = [[] for _ in cycles]
        self.settle(0)

    @property
    def begins(self) -> Sequence[float]:
        """Cycle at which each step was ready to begin when the run was last timed, and its end."""
        return self._now

    def settle(self, first: int) -> None:
        """Times all steps from one on as they are now, and keeps that."""
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
        """Cycle at which the run ends, where steps and transfers are others than kept from `first` to `last` alone."""
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
        """Waits that are due, transfers that start, those due at once, the step: times behind it."""
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
        """Cycles by which all from a step on comes later than kept; None where that differs from one to another.

        first: from which on transfers were timed again; those before it end when they did. A DMA that is still busy is
        at one of those that are waited for later.
        """
        later = now - self._now[index]
        for due in self._open[index]:
            held = [one for one in self._waits[due] if one[0] < index]
            own = [(start, end - later) for start, end in waits.get(due, ())]
            before = [one for one in held if one[0] < first]
            if (before and later) or held[len(before) :] != own:
                return None
        return None if any(due >= index and due not in self._open[index] for due in waits) else later
