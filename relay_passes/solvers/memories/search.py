"""Places of values, weights and scratch in several memories so that a model runs in the least predicted time.

Greedy first: items in the order of what they save for the bytes and steps they take, each put where it saves most while
there is room. Then local improvement: every item tries all its choices again; where a memory is full, what is in the
way and is not wanted for longest goes out first (Belady's rule), if the whole is faster for it. A start from an empty
near memory and one that keeps every value near until something pushes it out are both improved; the faster is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile

from relay_passes.solvers.memories.assignment import Assignment, Place, Stay, ValueTransfer, WeightsCopy
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.state import Choice, Item, Score, State

MOST_TRIALS = 12_000
"""Choices tried in all; each costs a walk over the steps."""
MOST_USES = 4
"""Reads of a value that are told apart; later ones are served from home."""
MOST_EVICTIONS = 3
LEADS = (0, -1, 1, 2, 4)
"""Steps by which a fetch is tried to start earlier than would just hide it, nothing else in the way."""


def assign(problem: AssignmentProblem) -> Assignment:
    """The fastest assignment found that holds every memory's limit; everything home where nothing is faster."""
    searches = [_Search(problem), _Search(problem)]
    searches[0].greedy()
    searches[1].keep_near()
    for search in searches:
        search.improve()
    best = min(searches, key=lambda search: search.best)
    home = State(problem)
    return best.state.assignment() if best.best < home.score() else home.assignment()


class _Search:
    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem, self.state = problem, State(problem)
        self.elapsed = [0.0, *accumulate(self.state.cycles)]
        self.items = list(self.state.choices)
        self.order = {item: place for place, item in enumerate(self.items)}
        self.menus = {item: list(dict.fromkeys(self._menu(item))) for item in self.items}
        self.items = [item for item in self.items if len(self.menus[item]) > 1]
        self.movable = set(self.items)
        self.best = self.state.score()
        self.trials = 0

    def greedy(self) -> None:
        """Items in the order of what their best choice saves for a byte and step, each at its best."""
        worth = {item: max(map(self._density(item), self.menus[item])) for item in self.items}
        for item in sorted(self.items, key=lambda item: -worth[item]):
            self._take_best(item)

    def keep_near(self) -> None:
        """Belady: every value is near from its maker to its last reader, until it is the one not wanted for longest."""
        for item in self.items:
            near = [c for c in self.menus[item] if isinstance(c, Place) and c.born != self.problem.home]
            if near:
                before = self.state.choices[item]
                self.state.set(item, max(near, key=lambda c: c.born_last))
                self._make_room(item)
                if self.state.overflow() > self.best.overflow:
                    self.state.set(item, before)
        self.best = self.state.score()

    def improve(self) -> None:
        """Tries all choices of all items until no item gains, or enough has been tried."""
        gained = True
        while gained and self.trials < MOST_TRIALS:
            gained = False
            for item in self.items:
                gained |= self._take_best(item)
                gained |= self._take_with_evictions(item)
            for item in self.items:
                self._take_smallest(item)

    def _take_best(self, item: Item) -> bool:
        """Set an item to the choice with the best score; whether that changed anything."""
        kept, found, best = self.state.choices[item], self.state.choices[item], self.best
        for choice in self.menus[item]:
            if choice != kept:
                score = self._try(item, choice)
                if _beats(score, best):
                    found, best = choice, score
        self.state.set(item, found)
        self.best = best
        if found != kept:
            self.state.settle()
        return found != kept

    def _take_smallest(self, item: Item) -> None:
        """The choice among those as fast that takes the fewest bytes for the fewest steps."""

        def taken(choice: Choice) -> int:
            return sum((e - b) * bytes_ for _, b, e, bytes_ in self.state.share(item, choice).bytes)

        kept = self.state.choices[item]
        for choice in sorted((c for c in self.menus[item] if taken(c) < taken(kept)), key=taken):
            if self._saved(item)(choice) >= 0 and not _beats(self.best, self._try(item, choice)):
                self.state.set(item, choice)
                self.state.settle()
                self.best = self.state.score()
                return

    def _take_with_evictions(self, item: Item) -> bool:
        """Try each choice that does not fit with what is in the way put home, as far as that pays."""
        for choice in self.menus[item]:
            if choice == self.state.choices[item] or self.trials >= MOST_TRIALS:
                continue
            before = {item: self.state.choices[item]}
            self.state.set(item, choice)
            if self.state.overflow() > self.best.overflow:
                before = {**self._make_room(item), **before}
                self.trials += 1
                score = self.state.score()
                if _beats(score, self.best):
                    self.best = score
                    self.state.settle()
                    return True
            for other in sorted(before, key=self.order.__getitem__):
                self.state.set(other, before[other])
        return False

    def _try(self, item: Item, choice: Choice) -> Score:
        kept = self.state.choices[item]
        self.trials += 1
        self.state.set(item, choice)
        overflow = self.state.overflow()
        score = Score(overflow, 0.0) if overflow > self.best.overflow else self.state.score_with(overflow)
        self.state.set(item, kept)
        return score if score.overflow <= self.best.overflow else Score(score.overflow, float("inf"))

    def _make_room(self, item: Item) -> dict[Item, Choice]:
        """Puts home the items wanted last while a memory is too small, except the item itself.

        Returns the choices that they had.
        """
        before: dict[Item, Choice] = {}
        for _ in range(MOST_EVICTIONS):
            crowded = next(((m, steps) for m in self.problem.near if (steps := self.state.crowded(m))), None)
            if crowded is None:
                return before
            memory, step = crowded[0], crowded[1][0]
            there = (self.state.items_at(memory, step) & self.movable) - {item}
            if not there:
                return before
            out = max(there, key=lambda other: (self._next_use(other, step), other))
            shorter = [c for c in self.menus[out] if self._leaves(out, c, memory, step)]
            before.setdefault(out, self.state.choices[out])
            self.state.set(out, max(shorter, key=self._saved(out)) if shorter else self.menus[out][0])
        return before

    def _leaves(self, item: Item, choice: Choice, memory: str, step: int) -> bool:
        """True if a choice keeps an item out of a memory at a step."""
        share = self.state.share(item, choice)
        return not any(at == memory and begin <= step < end for at, begin, end, _ in share.bytes)

    def _next_use(self, item: Item, step: int) -> float:
        """Predicted time from a step to an item's next one."""
        uses = self.problem.uses[item.index] if item.kind == "value" else [item.index]
        later = next((use for use in uses if use >= step), len(self.problem.steps))
        return self.elapsed[later] - self.elapsed[step]

    def _saved(self, item: Item) -> Callable[[Choice], float]:
        """Cycles of steps that a choice saves, transfers not set against them."""

        def saved(choice: Choice) -> float:
            return sum(cycles for _, cycles in kept.cycles) - sum(c for _, c in self.state.share(item, choice).cycles)

        kept = self.state.share(item, self.state.choices[item])
        return saved

    def _density(self, item: Item) -> Callable[[Choice], float]:
        """The same for each byte and step that the choice takes near."""
        saved = self._saved(item)

        def density(choice: Choice) -> float:
            taken = [
                (e - b) * bytes_ for m, b, e, bytes_ in self.state.share(item, choice).bytes if m in self.problem.near
            ]
            return saved(choice) / max(1, sum(taken)) if taken else 0.0

        return density

    def _menu(self, item: Item) -> Iterator[Choice]:
        """All choices of an item, the one it has without other memories first."""
        yield self.state.choices[item]
        if item.kind == "value" and not self.problem.sizes[item.index]:
            return  # a streamed input or output: the application holds it
        step = self.problem.steps[item.index] if item.kind != "value" else None
        for memory in (self.problem.home, *self.problem.near):
            if step is None and memory != self.problem.home:
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
        home = Place(born=problem.home, born_last=-1)
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
        """Every run of uses served by one copy, and each use by a copy of its own."""
        uses = [use for use in uses if self.problem.boundary_to(use) >= ready]
        near = [use for use in uses if self.problem.reaches(use, memory) and self.problem.can_move(use, memory)]
        if not near:
            return
        one = ValueTransfer(
            value=value, source=self.problem.home, target=memory, start=0, due=0, processor=self.problem.copier(near[0])
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
        """Places from `ready` on where a transfer for a step may start: where it is just hidden, and around that."""
        latest = self.problem.boundary_to(use)
        if latest < ready:  # the step runs together with the one that the value was last needed for
            return
        hidden = latest
        while hidden > ready and self.elapsed[latest] - self.elapsed[hidden] < cycles:
            hidden -= 1
        found = {self.problem.boundary_to(max(ready, min(latest, hidden - lead))) for lead in LEADS} | {latest}
        yield from sorted((start for start in found if start >= ready), reverse=True)


def _beats(score: Score, other: Score) -> bool:
    """True where a score is lower by more than rounding: equal scores change nothing, so that searches end."""
    return (score.overflow, score.cycles + 1e-6) < (other.overflow, other.cycles)
