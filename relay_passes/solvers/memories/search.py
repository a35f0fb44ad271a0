"""Search the memories of values, weights and scratch with which a model runs in the least predicted time.

Three starts are compared. Two are greedy: they add items in the order of their saving per byte and step, or of their
saving, and each item gets the choice that saves most while there is room. The third keeps every value in fast memory
until another value evicts it. Each start is repaired in a few trials where it seems to lose the most time.

Local improvement follows for the fastest: every item tries all its choices again. Where a memory is full, the item in
the way that is not needed for longest is evicted first (Belady's rule), if the whole run becomes faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relay_passes.solvers.memories.assignment import Assignment, Place
from relay_passes.solvers.memories.menus import Menus
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.state import Choice, Item, Score, Share, State

MOST_TRIALS = 12_000
"""Number of choices that an improvement tries. Each costs a walk over the steps."""
REPAIRING, LEAST_REPAIRING, MOST_REPAIRING = 2, 200, 300
"""Mean number of choices per item that are tried to repair a start, and the least and largest number in all."""
LEAST_ROUND = 0.001
"""Fraction of the predicted time that a round over all items has to gain for another round to follow."""
MOST_EVICTIONS = 3


def assign(problem: AssignmentProblem, *, most_trials: int = MOST_TRIALS) -> Assignment:
    """Return the fastest assignment found within every memory's limit, or everything in default memory if none is
    faster.

    most_trials: of the improvement that follows the repair of the starts.
    """
    searches = [_Search(problem) for _ in range(3)]
    searches[0].add_by_density()
    searches[1].add_by_saving()
    searches[2].keep_near()
    for search in searches:
        search.repair()
    fastest = min(searches, key=lambda search: search.best)
    fastest.improve(most_trials)
    return fastest.result()


def assign_quickly(problem: AssignmentProblem) -> Assignment:
    """Return an assignment within every memory's limit in a fraction of the time of `assign`."""
    search = _Search(problem)
    search.add_by_saving()
    search.repair()
    return search.result()


class _Search:
    """A search from everything in the default memory."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem, self.state = problem, State(problem)
        known = Menus(self.state)
        self.elapsed, self.menus = known.elapsed, known.of
        self.order = {item: place for place, item in enumerate(self.menus)}
        self.items = [item for item, menu in self.menus.items() if len(menu) > 1]
        self.movable = set(self.items)
        self.best = self.at_home = self.state.score()
        self.home = self.state.assignment()
        self.trials = 0

    def add_by_density(self) -> None:
        """Add items in the order of what their best choice saves per byte and step."""
        self._add({item: max(map(self._density(item), self.menus[item])) for item in self.items})

    def add_by_saving(self) -> None:
        """Add items in the order of what their best choice saves."""
        self._add({item: max(map(self._saved(item), self.menus[item])) for item in self.items})

    def _add(self, worth: Mapping[Item, float]) -> None:
        """Set each item to its best choice, items of the highest worth first."""
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

    def repair(self) -> None:
        """Try the choices of the items that seem to lose the most time, in few trials."""
        most = self.trials + max(LEAST_REPAIRING, min(REPAIRING * len(self.items), MOST_REPAIRING))
        gained = True
        while gained:
            gained = False
            lost = {item: max(map(self._saved(item), self.menus[item])) for item in self.items}
            for item in sorted((item for item in self.items if lost[item] > 0), key=lambda item: -lost[item]):
                if self.trials >= most:
                    return
                gained |= self._take_best(item)
                gained |= self._take_with_evictions(item)

    def improve(self, most_trials: int) -> None:
        """Try all choices of all items until a round gains too little, or until enough choices are tried."""
        before: Score | None = None
        most = self.trials + most_trials
        while self.trials < most and (before is None or self._gains(before)):
            before = self.best
            for item in self.items:
                self._take_best(item)
                self._take_with_evictions(item)
            for item in self.items:
                self._take_smallest(item)

    def _gains(self, before: Score) -> bool:
        """Return True if the score is lower than before by enough for another round."""
        return (self.best.overflow, self.best.cycles) < (before.overflow, before.cycles * (1 - LEAST_ROUND))

    def result(self) -> Assignment:
        """Return the current assignment, or everything in the default memory if it is not faster."""
        return self.state.assignment() if self.best < self.at_home else self.home

    def _take_best(self, item: Item) -> bool:
        """Set an item to the choice with the best score, and return whether that changed anything."""
        kept, found, best = self.state.choices[item], self.state.choices[item], self.best
        may_gain = self._may_gain(item)
        for choice in self.menus[item]:
            if choice != kept and may_gain(choice):
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
        """Try each choice that does not fit by evicting the items in its way, and keep it where that pays.

        Evictions rarely make a run faster by themselves, so only a choice that may gain without them is tried.
        """
        may_gain = self._may_gain(item)
        for choice in self.menus[item]:
            if choice == self.state.choices[item] or self.trials >= MOST_TRIALS or not may_gain(choice):
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

    def _may_gain(self, item: Item) -> Callable[[Choice], bool]:
        """Return a function that is False for a choice with which the run cannot become faster.

        The processors are busy for the cycles of all steps and of the copies by cores. A run takes at least this time,
        so a choice gains nothing if it adds more cycles than the run now waits for. Where a memory is too small, every
        choice may gain.
        """

        def may_gain(choice: Choice) -> bool:
            return is_over or _busy(self.state.share(item, choice)) < most

        is_over = self.best.overflow > (0, 0)
        most = self.best.cycles - self.state.busy() + _busy(self.state.share(item, self.state.choices[item]))
        return may_gain

    def _density(self, item: Item) -> Callable[[Choice], float]:
        """Return a function for the saved cycles per byte and step that a choice takes in fast memory."""
        saved = self._saved(item)

        def density(choice: Choice) -> float:
            taken = [
                (e - b) * bytes_ for m, b, e, bytes_ in self.state.share(item, choice).bytes if m in self.problem.near
            ]
            return saved(choice) / max(1, sum(taken)) if taken else 0.0

        return density


def _busy(share: Share) -> float:
    """Return the cycles of an item during which a processor is busy."""
    return sum(cycles for _, cycles in share.cycles) + sum(c for _, _, c, is_dma in share.transfers if not is_dma)


def _beats(score: Score, other: Score) -> bool:
    """Return True where a score is lower by more than rounding errors. Equal scores change nothing, so searches end."""
    return (score.overflow, score.cycles + 1e-6) < (other.overflow, other.cycles)
