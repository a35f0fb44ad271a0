"""Features of choices of an assignment, for a guide: plain numbers, none of which depends on units.

Beside what a choice takes and saves itself, they say how full its memory is when its turn comes, were items put there
one after the other, those first that save most for a byte and step: nothing is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log2

import numpy as np

from relay_passes.solvers.memories.assignment import Place
from relay_passes.solvers.memories.menus import Menus
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.state import Choice, Item, Share, State

LEADS = (0,)
"""Fetches of a proposal start where they are just hidden, or at the last moment."""
NUM_FACTS = 24
MEAN_SAVED = 4
"""Column of the cycles that a choice saves, in those of a mean step."""
_KINDS = ("value", "weights", "scratch")
Candidate = tuple[Item, Choice]


@dataclass(frozen=True, kw_only=True)
class _Gain:
    """Effect of a choice.

    spans: steps [begin, end) of `memory` and bytes in them; taken: these, in parts of the memory's limit; saved: cycles
    of steps; moving: cycles of its transfers; hidden: of those, the part that steps beside them cover.
    """

    memory: str
    spans: tuple[tuple[int, int, int], ...]
    taken: float
    saved: float
    moving: float
    hidden: float

    @property
    def begin(self) -> int:
        return self.spans[0][0]

    @property
    def end(self) -> int:
        return self.spans[-1][1]

    @property
    def density(self) -> float:
        return self.saved / max(self.taken, 1e-9)


def candidates(state: State, menus: Menus) -> tuple[Candidate, ...]:
    """Every choice of every item beside the one it has that may be worth it; the state has everything at home."""
    is_over = state.overflow() > (0, 0)
    return tuple(
        (item, choice)
        for item, menu in menus.of.items()
        for choice in menu[1:]
        if _moved(state, item, choice) and (is_over or _pays(state.share(item, choice), state.share(item, menu[0])))
    )


def _pays(share: Share, home: Share) -> bool:
    """False where a core copies for longer than is saved by it."""
    copying = sum([cycles for _, _, cycles, is_dma in share.transfers if not is_dma])
    return not copying or sum([cycles for _, cycles in home.cycles]) - sum([c for _, c in share.cycles]) > copying


def facts_of(state: State, choices: tuple[Candidate, ...]) -> np.ndarray:
    """float32[choices, NUM_FACTS] of the candidates of a state that has everything at home."""
    problem, room = state.problem, _Room(state)
    elapsed = [0.0, *accumulate(state.cycles)]
    mean = max(elapsed[-1] / max(1, len(problem.steps)), 1e-9)
    largest = max(1, *problem.sizes)
    gains = [_gain(state, item, choice, elapsed) for item, choice in choices]
    rows_of: dict[Item, list[int]] = {}
    for row, (item, _) in enumerate(choices):
        rows_of.setdefault(item, []).append(row)
    best = {item: max(rows, key=lambda row: gains[row].density) for item, rows in rows_of.items()}
    found: list[tuple[float, ...]] = [()] * len(choices)
    for place, item in enumerate(sorted(rows_of, key=lambda item: -gains[best[item]].density)):
        rows, top = rows_of[item], gains[best[item]]
        most = max(gains[row].saved for row in rows)
        for row in rows:
            gain = gains[row]
            limit, steps = max(1, problem.limits[gain.memory]), max(1, gain.end - gain.begin)
            found[row] = (
                _KINDS.index(item.kind), max(bytes_ for _, _, bytes_ in gain.spans) / limit, gain.end - gain.begin,
                gain.taken / steps, gain.saved / mean, gain.saved / max(most, 1e-9),
                log2(max(gain.density / mean, 1e-6)), place / len(rows_of),
                gain.density / max(top.density, 1e-9), float(row == best[item]),
                gain.moving / mean, gain.moving / max(gain.saved, 1.0), gain.hidden,
                *_shape(problem, item, choices[row][1]), room.left(gain) / limit, room.asked(gain) / limit,
                room.over_home(gain), limit / largest, len(problem.near),
                [problem.home, *problem.near].index(gain.memory), len(rows),
            )  # fmt: skip
        room.put_in(top)
    return np.array(found, np.float32).reshape(len(choices), NUM_FACTS)


class _Room:
    """Bytes of memories while items come one after the other. filled: with those that fitted; denser: with all."""

    def __init__(self, state: State) -> None:
        home = state.problem.home
        self.limits = state.problem.limits
        self.filled = {memory: used.copy() for memory, used in state.used.items()}
        self.denser = {memory: used.copy() for memory, used in state.used.items()}
        self.over = np.maximum(state.used[home] - self.limits[home], 0) / max(1, self.limits[home])
        self.is_over = bool(self.over.any())
        self._most: dict[tuple[str, int, int], tuple[int, int]] = {}

    def left(self, gain: _Gain) -> int:
        """Bytes that would be left where the memory is fullest; below 0 where a choice does not fit."""
        limit = max(1, self.limits[gain.memory])
        return min([limit - self._most_in(gain.memory, begin, end)[0] - bytes_ for begin, end, bytes_ in gain.spans])

    def asked(self, gain: _Gain) -> int:
        """The most bytes that items before this one would take at a time, did all fit."""
        return max([self._most_in(gain.memory, begin, end)[1] for begin, end, _ in gain.spans])

    def over_home(self, gain: _Gain) -> float:
        """Bytes that home has too many, in parts of its limit."""
        return float(self.over[gain.begin : gain.end].max()) if self.is_over else 0.0

    def _most_in(self, memory: str, begin: int, end: int) -> tuple[int, int]:
        """The most bytes of both in some steps; choices of one item ask for the same ones."""
        key = memory, begin, end
        if key not in self._most:
            self._most[key] = int(self.filled[memory][begin:end].max()), int(self.denser[memory][begin:end].max())
        return self._most[key]

    def put_in(self, gain: _Gain) -> None:
        self._most.clear()
        fits = all(
            self.filled[gain.memory][begin:end].max() + bytes_ <= self.limits[gain.memory]
            for begin, end, bytes_ in gain.spans
        )
        for begin, end, bytes_ in gain.spans:
            self.denser[gain.memory][begin:end] += bytes_
            if fits:
                self.filled[gain.memory][begin:end] += bytes_


def _moved(state: State, item: Item, choice: Choice) -> bool:
    """True where a choice takes bytes of a near memory, or weights lie at home."""
    return item.kind == "weights" or any(memory != state.problem.home for memory, *_ in state.share(item, choice).bytes)


def _gain(state: State, item: Item, choice: Choice, elapsed: Sequence[float]) -> _Gain:
    share, home = state.share(item, choice), state.share(item, state.choices[item])
    at_home = state.problem.home
    memory = next((span[0] for span in share.bytes if span[0] != at_home), at_home)
    spans = sorted([(b, e, bytes_) for one, b, e, bytes_ in share.bytes if one == memory])
    moving = sum([transfer[2] for transfer in share.transfers])
    return _Gain(
        memory=memory, spans=tuple(spans),
        taken=sum([(e - b) * bytes_ for b, e, bytes_ in spans]) / max(1, state.problem.limits[memory]),
        saved=sum([cycles for _, cycles in home.cycles]) - sum([cycles for _, cycles in share.cycles]), moving=moving,
        hidden=_hidden(share, elapsed) / moving if moving else 1.0,
    )  # fmt: skip


def _hidden(share: Share, elapsed: Sequence[float]) -> float:
    """Cycles of transfers beside which steps run, nothing else in the way."""
    return sum(
        min(cycles, elapsed[max(due, start)] - elapsed[start])
        for start, due, cycles, is_dma in share.transfers
        if is_dma
    )


def _shape(problem: AssignmentProblem, item: Item, choice: Choice) -> tuple[float, ...]:
    """Reads of a value, the part of them served near, whether it is made near, fetches."""
    if not isinstance(choice, Place):
        return 1.0, 1.0, 0.0, 0.0
    uses = problem.uses[item.index]
    near = sum(choice.memory_at(use, problem.home) != problem.home for use in uses)
    return len(uses), near / max(1, len(uses)), float(choice.born != problem.home), len(choice.stays)
