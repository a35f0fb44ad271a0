"""The whole update of a network for a platform's memories: its cuts, its repeats and its places, in the least time.

Cuts are ranked first by the greedy start of the search for places. Repeats that may pay (`repeats`) are added one after
the other, as long as the best cut with them is ranked higher. The search for places then goes on with those that are
ranked highest, and with the network as it was. A guide proposes one update more: all its repeats, its cut and its
places are rated once. The fastest is taken, so that nothing is slower for the guide. Of networks that this would take
too long for, the guide's proposal is all there is beside places alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice

import numpy as np

from relay_passes.solvers.memories import cut_facts, repeats
from relay_passes.solvers.memories.assignment import Assignment
from relay_passes.solvers.memories.cuts import Outside, SegmentTimes, cut_problem
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.propose import Rate
from relay_passes.solvers.memories.repeated import repeated_problem
from relay_passes.solvers.memories.repeats import Rerun, promising, sequence_of
from relay_passes.solvers.memories.search import assign, assign_greedily
from relay_passes.solvers.memories.state import Score
from relay_passes.solvers.split.search import Split, frontier
from relay_passes.solvers.split.segments import Segments

SHARES = (1.0, 0.8, 0.6, 0.4)
"""Parts of the near memory that the operands of what runs in series are taken to find free."""
MOST_SEARCHED = 3
"""Updates that places are searched for, beside the network as it was."""
MOST_STEPS = 160
"""Steps up to which cuts and repeats are searched for: with 800, to list all ways to cut takes a minute alone."""
MOST_REPEATS = 4
"""Repeats that are tried, each with the cuts of least expected time."""
SMALL = 12
"""Steps up to which a guide's proposal looks at every cut."""
LIKELY = 0.25
"""Rating from which on a repeat is proposed."""

Places = Callable[[AssignmentProblem], Assignment]
Order = tuple[int, ...]
"""Steps in the order they run, some of them again."""
SegmentsOf = Callable[[Order], Segments]
CutsOf = Callable[[Order], Iterable[Split]]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """A guide's ratings. places: of choices of places. outside: of segments by `cut_facts`, the part of their operands
    that a good plan has at home. repeats: by their facts, how likely each makes a good plan faster."""

    places: Rate
    outside: Rate
    repeats: Rate


@dataclass(frozen=True, kw_only=True)
class Update:
    """A sequence of a network's steps, some again, its cut, the problem that they make of it, and its places."""

    sequence: Order
    cut: Split
    problem: AssignmentProblem
    assignment: Assignment

    @cached_property
    def score(self) -> Score:
        return Score(self.problem.overflow(self.assignment), self.problem.predicted_cycles(self.assignment))


class Updates:
    """Updates of a network. whole: its steps whole, in their order."""

    def __init__(self, whole: AssignmentProblem, segments_of: SegmentsOf, rates: Rates | None = None) -> None:
        self.whole, self.rates = whole, rates
        self.segments_of = cache(segments_of)

    def fastest(self) -> tuple[Update, Update]:
        """The fastest update found, and the network as it was; of many steps, only a guide's proposal beside that."""
        found = self.searched() if len(self.whole.steps) <= MOST_STEPS else [self.uncut(self._places)]
        return min((*found, self.proposal()) if self.rates else found, key=_rank), found[-1]

    def searched(self) -> list[Update]:
        """Updates that places are searched for: those that are ranked highest, at last the network as it was."""
        ranked, taken = self.ranked((), self.cuts), list[Rerun]()
        uncut = self._uncut()
        for repeat in promising(self.whole)[:MOST_REPEATS]:
            with_it = self.ranked((*taken, repeat), self.timed_cuts)
            if with_it[0].score < ranked[0].score:
                taken.append(repeat)
                ranked = sorted([*with_it, *ranked], key=_rank)
        ways = ((one.sequence, one.cut) for one in ranked)
        best = [*islice((way for way in ways if way != uncut), MOST_SEARCHED), uncut]
        return [self._update(*way, self._places) for way in best]

    def uncut(self, places: Places) -> Update:
        """The network as it was, with such places."""
        return self._update(*self._uncut(), places)

    def ranked(self, repeated: tuple[Rerun, ...], cuts: CutsOf) -> list[Update]:
        """Cuts with some repeats, each with its places as the search begins, the fastest first."""
        sequence = sequence_of(len(self.whole.steps), repeated)
        found = dict.fromkeys(cuts(sequence))
        return sorted((self._update(sequence, cut, assign_greedily) for cut in found), key=_rank)

    def proposal(self) -> Update:
        """A guide's proposal in one pass: the repeats and the cut that it expects to be fast, and the places.

        Without its cut or its repeats, where that is faster; of a small network, with any cut that is.
        """
        rates = self.rates
        assert rates is not None, "a guide proposes"
        uncut = sequence_of(len(self.whole.steps), ())
        ways: list[tuple[Order, Split]] = []
        for sequence in dict.fromkeys((uncut, sequence_of(len(self.whole.steps), self.likely()))):
            segments, times = self.segments_of(sequence).few(), self._times(sequence)
            ways += [(sequence, _uncut(segments))] if sequence == uncut else []
            expected = _expected(times, rates), times.outside
            ways += [(sequence, times.fastest(segments, outside)) for outside in expected]
            ways += [(sequence, cut) for cut in self.cuts(sequence)] if len(sequence) <= SMALL else []
        updates = (
            self._update(*way, lambda problem: assign(problem, rates.places, most_trials=0))
            for way in dict.fromkeys(ways)
        )
        return min(updates, key=_rank)

    def cuts(self, sequence: Order) -> Iterator[Split]:
        """Cuts that may be fast: none, those of least expected time, the cheapest within each budget of bytes."""
        yield _uncut(self.segments_of(sequence))
        yield from self.timed_cuts(sequence)
        yield from frontier(self.segments_of(sequence))

    def timed_cuts(self, sequence: Order) -> Iterator[Split]:
        """Cuts of least expected time."""
        segments, times = self.segments_of(sequence), self._times(sequence)
        for share in SHARES:
            yield times.fastest(segments, lambda ending, share=share: times.outside(ending, share))

    def likely(self) -> list[Rerun]:
        """Repeats that a guide expects to be worth it."""
        assert self.rates is not None, "a guide expects"
        found = promising(self.whole)[:MOST_REPEATS]
        if not found:
            return []
        rated = self.rates.repeats(repeats.facts_of(self.whole, found))
        return [repeat for repeat, rate in zip(found, rated.tolist(), strict=True) if rate >= LIKELY]

    def problem(self, sequence: Order, cut: Split) -> AssignmentProblem:
        """The problem of a cut sequence."""
        return cut_problem(repeated_problem(self.whole, sequence), self.segments_of(sequence), cut.segments)[0]

    def _times(self, sequence: Order) -> SegmentTimes:
        return SegmentTimes(repeated_problem(self.whole, sequence))

    def _places(self, problem: AssignmentProblem) -> Assignment:
        """Places by the search, or the guide's where they are faster."""
        return assign(problem, self.rates.places if self.rates else None)

    def _uncut(self) -> tuple[Order, Split]:
        """The network as it was."""
        sequence = sequence_of(len(self.whole.steps), ())
        return sequence, _uncut(self.segments_of(sequence))

    def _update(self, sequence: Order, cut: Split, places: Places) -> Update:
        problem = self.problem(sequence, cut)
        return Update(sequence=sequence, cut=cut, problem=problem, assignment=places(problem))


def _uncut(segments: Segments) -> Split:
    """Every step whole."""
    return Split(segments=tuple(segments.alone(index) for index in range(len(segments.graph.nodes))))


def _expected(times: SegmentTimes, rates: Rates) -> Outside:
    """The part of the operands of segments that a guide expects at home."""
    return lambda ending: np.clip(rates.outside(cut_facts.facts_of(times, ending)), 0, 1)


def _rank(update: Update) -> Score:
    return update.score
