"""Search the memories of values, weights and scratch with which a model runs in the least predicted time.

A greedy start adds items in the order of their saving per byte and step. Each item gets the choice that saves most
while there is room. Then local improvement follows: every item tries all its choices again. Where a memory is full, the
item in the way that is not needed for longest is evicted first (Belady's rule), if the whole run becomes faster. Two
starts are improved, an empty fast memory, and a fast memory that keeps every value until another value evicts it. The
faster result is taken. The proposal of a learned cost model for everything at once (`propose`) is a third start, and
only its greatest apparent losses are repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relay_passes.solvers.memories.assignment import Assignment, Place
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.propose import FACT_LEADS, LEADS, Menus, Rate, propose
from relay_passes.solvers.memories.state import Choice, Item, Score, State

MOST_TRIALS = 12_000
"""Number of choices tried in all. Each costs a walk over the steps."""
MENDING, LEAST_MENDING, MOST_MENDING = 2, 200, 300
"""Mean number of choices per item that are tried to repair a proposal, and the least and largest number in all."""
MOST_EVICTIONS = 3


def assign(problem: AssignmentProblem, rate: Rate | None = None, *, most_trials: int = MOST_TRIALS) -> Assignment:
    """Return the fastest assignment found within every memory's limit, or everything in default memory if none is
    faster.

    rate: of a learned cost model. Its proposal is taken where it is faster than the results of the searches, so that it
    never makes a result slower.
    most_trials: of each search after its start; 0 for the proposal alone.
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
    """Return the search's greedy start alone, or everything in the default memory."""
    search = _Search(problem)
    search.greedy()
    return search.state.assignment() if search.best < search.at_home else search.home


class _Search:
    """A search from everything in the default memory. leads: as in `Menus`."""

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
        """Add items in the order of what their best choice saves per byte and step, each with its best choice."""
        worth = {item: max(map(self._density(item), self.menus[item])) for item in self.items}
        for item in sorted(self.items, key=lambda item: -worth[item]):
            self._take_best(item)

    def keep_near(self) -> None:
        """Keep every value in fast memory until its last reader, or until Belady's rule evicts it.

        The rule evicts the value that is not needed for longest.
        """
        for item in self.items:
            near = [c for c in self.menus[item] if isinstance(c, Place) and c.born != self.problem.default_memory]
            if near:
                before = self.state.choices[item]
                self.state.set(item, max(near, key=lambda c: c.born_last))
                self._make_room(item)
                if self.state.overflow() > self.best.overflow:
                    self.state.set(item, before)
        self.best = self.state.score()

    def propose(self, rate: Rate) -> None:
        """Take a learned cost model's proposal, and repair it in few trials where most seems lost."""
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
        """Try all choices of all items until no item gains, or until enough choices are tried."""
        gained = True
        while gained and self.trials < most_trials:
            gained = False
            for item in self.items:
                gained |= self._take_best(item)
                gained |= self._take_with_evictions(item)
            for item in self.items:
                self._take_smallest(item)

    def _take_best(self, item: Item) -> bool:
        """Set an item to the choice with the best score, and return whether that changed anything."""
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
        """Set an item to the choice that takes the fewest bytes for the fewest steps, among equally fast choices."""

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
        """Try each choice that does not fit by evicting the items in its way, and keep it where that pays."""
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
        """Evict the items that are needed last while a memory is too small, except the item itself.

        Return the previous choices of the evicted items.
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
        """Return True if a choice keeps an item out of a memory at a step."""
        share = self.state.share(item, choice)
        return not any(at == memory and begin <= step < end for at, begin, end, _ in share.bytes)

    def _next_use(self, item: Item, step: int) -> float:
        """Return the predicted time from a step to an item's next use."""
        uses = self.problem.uses[item.index] if item.kind == "value" else [item.index]
        later = next((use for use in uses if use >= step), len(self.problem.steps))
        return self.elapsed[later] - self.elapsed[step]

    def _saved(self, item: Item) -> Callable[[Choice], float]:
        """Return a function for the cycles of steps that a choice saves, without the cost of transfers."""

        def saved(choice: Choice) -> float:
            return sum(cycles for _, cycles in kept.cycles) - sum(c for _, c in self.state.share(item, choice).cycles)

        kept = self.state.share(item, self.state.choices[item])
        return saved

    def _density(self, item: Item) -> Callable[[Choice], float]:
        """Return a function for the saved cycles per byte and step that a choice takes in fast memory."""
        saved = self._saved(item)

        def density(choice: Choice) -> float:
            taken = [
                (e - b) * bytes_ for m, b, e, bytes_ in self.state.share(item, choice).bytes if m in self.problem.near
            ]
            return saved(choice) / max(1, sum(taken)) if taken else 0.0

        return density


def _beats(score: Score, other: Score) -> bool:
    """Return True where a score is lower by more than rounding errors. Equal scores change nothing, so searches end."""
    return (score.overflow, score.cycles + 1e-6) < (other.overflow, other.cycles)
