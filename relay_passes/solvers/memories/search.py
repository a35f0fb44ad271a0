"""Places of values, weights and scratch in several memories so that a model runs in the least predicted time.

Greedy first: items in the order of what they save for the bytes and steps they take, each put where it saves most while
there is room. Then local improvement: every item tries all its choices again; where a memory is full, what is in the
way and is not wanted for longest goes out first (Belady's rule), if the whole is faster for it. A start from an empty
near memory and one that keeps every value near until something pushes it out are both improved; the faster is taken.
A guide's proposal for everything at once (`propose`) is a third one, which is mended where most seems lost alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relay_passes.solvers.memories.assignment import Assignment, Place
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.propose import FACT_LEADS, LEADS, Menus, Rate, propose
from relay_passes.solvers.memories.state import Choice, Item, Score, State

MOST_TRIALS = 12_000
"""Choices tried in all; each costs a walk over the steps."""
MENDING, LEAST_MENDING, MOST_MENDING = 2, 200, 300
"""Choices tried for an item, in the mean, to mend a proposal; at the least, and at the most, in all."""
MOST_EVICTIONS = 3


def assign(problem: AssignmentProblem, rate: Rate | None = None, *, most_trials: int = MOST_TRIALS) -> Assignment:
    """The fastest assignment found that holds every memory's limit; everything home where nothing is faster.

    rate: of a guide; its proposal is taken where it is faster than what the searches have when their time is over, so
    that no result is slower for it. most_trials: of each search, behind its start; 0 for the proposal alone.
    """
    searches: list[_Search] = []
    if most_trials:
        searches += [_Search(problem), _Search(problem)]
        searches[0].greedy()
        searches[1].keep_near()
    for search in searches:
        search.improve(most_trials)
    if rate is not None:
        searches.append(_Search(problem, FACT_LEADS))
        searches[-1].propose(rate)
    if not searches:
        return State(problem).assignment()
    best = min(searches, key=lambda search: search.best)
    return best.state.assignment() if best.best < best.at_home else best.home


def assign_greedily(problem: AssignmentProblem) -> Assignment:
    """The search's greedy start alone, or everything home."""
    search = _Search(problem)
    search.greedy()
    return search.state.assignment() if search.best < search.at_home else search.home


class _Search:
    """A search from everything at home. leads: as `Menus` has them."""

    def __init__(self, problem: AssignmentProblem, leads: Sequence[int] = LEADS) -> None:
        self.problem, self.state = problem, State(problem)
        self.known = Menus(self.state, leads)
        self.elapsed, self.menus = self.known.elapsed, self.known.of
        self.order = {item: place for place, item in enumerate(self.menus)}
        self.items = [item for item, menu in self.menus.items() if len(menu) > 1]
        self.movable = set(self.items)
        self.best = self.at_home = self.state.score()
        self.home = self.state.assignment()
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

    def propose(self, rate: Rate) -> None:
        """Puts everything where a guide proposes it, and mends that where most seems lost, with few trials."""
        propose(self.state, self.known, rate)
        self.best = self.state.score()
        self.menus = Menus(State(self.problem), LEADS).of
        gained = True
        while gained:
            gained = False
            lost = {item: max(map(self._saved(item), self.menus[item])) for item in self.items}
            for item in sorted((item for item in self.items if lost[item] > 0), key=lambda item: -lost[item]):
                if self.trials >= max(LEAST_MENDING, min(MENDING * len(self.items), MOST_MENDING)):
                    return
                gained |= self._take_best(item)
                gained |= self._take_with_evictions(item)

    def improve(self, most_trials: int) -> None:
        """Tries all choices of all items until no item gains, or enough has been tried."""
        gained = True
        while gained and self.trials < most_trials:
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


def _beats(score: Score, other: Score) -> bool:
    """True where a score is lower by more than rounding: equal scores change nothing, so that searches end."""
    return (score.overflow, score.cycles + 1e-6) < (other.overflow, other.cycles)
