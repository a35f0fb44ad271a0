"""The choices of an assignment to memories, their features, and the proposal of a learned cost model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from math import log2

import numpy as np

from relay_passes.solvers.memories.assignment import Place, Stay, ValueTransfer, WeightsCopy
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.state import Choice, Item, Share, State

MOST_USES = 4
"""Most reads of a value that are told apart. Later reads use the default memory."""
LEADS = (0, -1, 1, 2, 4)
"""Numbers of steps by which a prefetch is started earlier than would just hide it, if nothing delays it."""


class Menus:
    """The choices of the items of a state in which everything lies in the default memory.

    leads: the numbers of steps by which prefetches start earlier than would just hide them. A start at the last moment
    is a choice too.
    """

    def __init__(self, state: State, leads: Sequence[int] = LEADS) -> None:
        self.problem: AssignmentProblem = state.problem
        self.elapsed = [0.0, *accumulate(state.cycles)]
        self.leads = leads
        self.of = {item: list(dict.fromkeys(self._menu(item, home))) for item, home in state.choices.items()}

    def _menu(self, item: Item, home: Choice) -> Iterator[Choice]:
        """Yield all choices of an item, starting with its choice without other memories."""
        yield home
        if item.kind == "value" and not self.problem.sizes[item.index]:
            return  # the application holds a streamed input or output
        step = self.problem.steps[item.index] if item.kind != "value" else None
        for memory in (self.problem.default_memory, *self.problem.near):
            if step is None and memory != self.problem.default_memory:
                yield from self._places(item.index, memory)
            elif step and not self.problem.reaches(item.index, memory):
                continue
            elif item.kind == "scratch" and step and step.movable:
                yield memory
            elif item.kind == "weights" and step and step.movable and step.weights_read_bytes:
                yield from self._copies(item.index, memory)

    def _copies(self, index: int, memory: str) -> Iterator[WeightsCopy]:
        problem, size = self.problem, self.problem.steps[index].weights_bytes
        if memory == problem.stored or not problem.time.has_dma(problem.stored, memory):
            return
        for start in self._starts(index, 0, problem.time.transfer_cycles(problem.stored, memory, size)):
            yield WeightsCopy(memory=memory, start=start)

    def _places(self, value: int, memory: str) -> Iterator[Place]:
        problem, uses = self.problem, self.problem.uses[value][:MOST_USES]
        maker = problem.makers.get(value)
        home = Place(born=problem.default_memory, born_last=-1)
        for stays in self._stays(value, memory, uses, 0 if maker is None else problem.boundary_from(maker + 1)):
            yield replace(home, stays=stays)
        if maker is None or value in problem.outputs or not problem.steps[maker].movable:
            return
        if not problem.reaches(maker, memory):
            return
        for number, last in enumerate(uses):
            if not problem.reaches(last, memory):
                return
            born = Place(born=memory, born_last=last)
            later = problem.uses[value][number + 1 :]
            if later and (later[0] < problem.home_again(value) or not problem.can_move(maker, memory)):
                continue
            yield born
            if later:
                for stays in self._stays(value, memory, later[:MOST_USES], problem.home_again(value)):
                    yield replace(born, stays=stays)

    def _stays(self, value: int, memory: str, uses: Sequence[int], ready: int) -> Iterator[tuple[Stay, ...]]:
        """Yield stays: each run of consecutive uses with a common copy, then a copy for each use."""
        uses = [use for use in uses if self.problem.boundary_to(use) >= ready]
        near = [use for use in uses if self.problem.reaches(use, memory) and self.problem.can_move(use, memory)]
        if not near:
            return
        one = ValueTransfer(
            value=value,
            source=self.problem.default_memory,
            target=memory,
            start=0,
            due=0,
            processor=self.problem.copier(near[0]),
        )
        cycles = self.problem.transfer_cycles(one)
        for first, begin in enumerate(uses):
            run = list(takewhile(near.__contains__, uses[first:]))
            for start in self._starts(begin, ready, cycles) if run else ():
                for last in run:
                    yield (Stay(memory=memory, start=start, first=begin, last=last),)
        uses = near
        if len(uses) > 1:
            own: list[Stay] = []
            for use in uses:
                ready = max(ready, self.problem.boundary_from(own[-1].last + 1)) if own else ready
                starts = list(self._starts(use, ready, cycles))
                if not starts:
                    return
                own.append(Stay(memory=memory, start=starts[len(starts) // 2], first=use, last=use))
            yield tuple(own)

    def _starts(self, use: int, ready: int, cycles: float) -> Iterator[int]:
        """Yield the steps from `ready` on at which a transfer may start: where it is just hidden, and near that."""
        latest = self.problem.boundary_to(use)
        if latest < ready:  # the step runs in turns with the last reader of the other copy
            return
        hidden = latest
        while hidden > ready and self.elapsed[latest] - self.elapsed[hidden] < cycles:
            hidden -= 1
        found = {self.problem.boundary_to(max(ready, min(latest, hidden - lead))) for lead in self.leads} | {latest}
        yield from sorted((start for start in found if start >= ready), reverse=True)


FACT_LEADS = (0,)
"""Prefetches of a proposal start where they are just hidden, or at the last moment."""
NUM_FACTS = 24
MEAN_SAVED = 4
"""Column of the cycles that a choice saves, relative to a mean step."""
_KINDS = ("value", "weights", "scratch")
Candidate = tuple[Item, Choice]


@dataclass(frozen=True, kw_only=True)
class _Gain:
    """The effect of a choice.

    spans: steps [begin, end) of `memory`, with the bytes in them.
    taken: bytes times steps, relative to the memory's limit.
    saved: cycles of steps.
    moving: cycles of its transfers.
    hidden: the fraction of these that runs during other steps.
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
    """Return every choice of every item that may be worthwhile. The state has everything in the default memory."""
    is_over = state.overflow() > (0, 0)
    return tuple(
        (item, choice)
        for item, menu in menus.of.items()
        for choice in menu[1:]
        if _moved(state, item, choice) and (is_over or _pays(state.share(item, choice), state.share(item, menu[0])))
    )


def _pays(share: Share, home: Share) -> bool:
    """Return False where a core copies for longer than the choice saves."""
    copying = sum([cycles for _, _, cycles, is_dma in share.transfers if not is_dma])
    return not copying or sum([cycles for _, cycles in home.cycles]) - sum([c for _, c in share.cycles]) > copying


def facts_of(state: State, choices: tuple[Candidate, ...]) -> np.ndarray:
    """Return float32[choices, NUM_FACTS] for the candidates of a state with everything in the default memory."""
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
                [problem.default_memory, *problem.near].index(gain.memory), len(rows),
            )  # fmt: skip
        room.put_in(top)
    return np.array(found, np.float32).reshape(len(choices), NUM_FACTS)


class _Room:
    """The bytes in memories as items are added one after another.

    filled: with the items that fit.
    denser: with all items.
    """

    def __init__(self, state: State) -> None:
        home = state.problem.default_memory
        self.limits = state.problem.limits
        self.filled = {memory: used.copy() for memory, used in state.used.items()}
        self.denser = {memory: used.copy() for memory, used in state.used.items()}
        self.over = np.maximum(state.used[home] - self.limits[home], 0) / max(1, self.limits[home])
        self.is_over = bool(self.over.any())
        self._most: dict[tuple[str, int, int], tuple[int, int]] = {}

    def left(self, gain: _Gain) -> int:
        """Return the bytes that stay free where the memory is fullest, negative where a choice does not fit."""
        limit = max(1, self.limits[gain.memory])
        return min([limit - self._most_in(gain.memory, begin, end)[0] - bytes_ for begin, end, bytes_ in gain.spans])

    def asked(self, gain: _Gain) -> int:
        """Return the most bytes that items ahead of this item would take at a time if all of them fitted."""
        return max([self._most_in(gain.memory, begin, end)[1] for begin, end, _ in gain.spans])

    def over_home(self, gain: _Gain) -> float:
        """Return the bytes by which the default memory is too small, relative to its limit."""
        return float(self.over[gain.begin : gain.end].max()) if self.is_over else 0.0

    def _most_in(self, memory: str, begin: int, end: int) -> tuple[int, int]:
        """Return the most bytes of both counts in some steps. The choices of an item repeat the same queries."""
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
    """Return True where a choice takes bytes of a fast memory, or where weights lie in the default memory."""
    return item.kind == "weights" or any(
        memory != state.problem.default_memory for memory, *_ in state.share(item, choice).bytes
    )


def _gain(state: State, item: Item, choice: Choice, elapsed: Sequence[float]) -> _Gain:
    share, home = state.share(item, choice), state.share(item, state.choices[item])
    at_home = state.problem.default_memory
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
    """Return the cycles of transfers that run during other steps, if nothing delays them."""
    return sum(
        min(cycles, elapsed[max(due, start)] - elapsed[start])
        for start, due, cycles, is_dma in share.transfers
        if is_dma
    )


def _shape(problem: AssignmentProblem, item: Item, choice: Choice) -> tuple[float, ...]:
    """Return features of a choice.

    They are the reads of a value, the fraction of them from fast memory, whether the value is written there, and the
    number of prefetches.
    """
    if not isinstance(choice, Place):
        return 1.0, 1.0, 0.0, 0.0
    uses = problem.uses[item.index]
    near = sum(choice.memory_at(use, problem.default_memory) != problem.default_memory for use in uses)
    return len(uses), near / max(1, len(uses)), float(choice.born != problem.default_memory), len(choice.stays)


Rate = Callable[[np.ndarray], np.ndarray]
"""Maps float[choices, NUM_FACTS] to the likelihood, from about 0 to 1, that a search takes each choice."""
LEAST_SURE = 0.01
"""Least likelihood and saving with which a choice is ranked, so that choices rated zero keep an order."""


def propose(state: State, menus: Menus, rate: Rate) -> None:
    """Change a state with everything in the default memory to the learned cost model's proposal, within all limits."""
    choices = candidates(state, menus)
    if not choices:
        return
    facts = facts_of(state, choices)
    sure = np.clip(rate(facts), LEAST_SURE, 1)
    order = np.argsort(-sure * sure * np.maximum(facts[:, MEAN_SAVED], LEAST_SURE), kind="stable")
    home = dict(state.choices)
    _put_in(state, [choices[row] for row in order.tolist()])
    state.settle()
    _take_back(state, home)


def _put_in(state: State, ranked: Sequence[Candidate]) -> None:
    """Take for each item the first of its choices that fits."""
    overflow = state.overflow()
    decided: set[Item] = set()
    for item, choice in ranked:
        if item in decided:
            continue
        before = state.choices[item]
        state.set(item, choice)
        after = state.overflow()
        if after > overflow:
            state.set(item, before)
        else:
            overflow = after
            decided.add(item)


def _take_back(state: State, home: Mapping[Item, Choice]) -> None:
    """Return items to the default memory whose transfers take longer than they save."""
    best = state.score()
    for item, choice in home.items():
        kept = state.choices[item]
        if kept != choice and state.share(item, kept).transfers:
            state.set(item, choice)
            overflow = state.overflow()
            if overflow <= best.overflow and (score := state.score_with(overflow)) < best:
                best = score
                state.settle()
            else:
                state.set(item, kept)
