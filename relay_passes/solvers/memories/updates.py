"""Search a network's update for a platform's memories in the least time: its cuts, recomputations and assignment.

Cuts are first ranked by the greedy start of the search for assignments. Recomputations that may pay (`repeats`) are
added one after another, as long as the best cut with them ranks higher. The search for assignments then continues with
the highest ranked updates, and with the unchanged network. A learned cost model proposes one more update: its
recomputations, its cut and its assignment, rated once. The fastest update is taken, so that the model never makes a
result slower. For networks on which this would take too long, the proposal is the only update besides the assignment
alone.
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
"""Fractions of the fast memory that the operands of row sequences are assumed to find free."""
MOST_SEARCHED = 3
"""Number of updates for which assignments are searched, besides the unchanged network."""
MOST_STEPS = 160
"""Most steps for which cuts and recomputations are searched. With 800 steps, listing all segments takes a minute."""
MOST_REPEATS = 4
"""Number of recomputations that are tried, each with the cuts of least expected time."""
SMALL = 12
"""Most steps for which a proposal considers every cut."""
LIKELY = 0.25
"""Least rating with which a recomputation is proposed."""

Places = Callable[[AssignmentProblem], Assignment]
Order = tuple[int, ...]
"""Steps in the order in which they run, where some may be repeated."""
SegmentsOf = Callable[[Order], Segments]
CutsOf = Callable[[Order], Iterable[Split]]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The ratings of a learned cost model.

    places: of choices of memories.
    outside: of segments by `cut_facts`, the fraction of their operands that a good plan has in the default memory.
    repeats: of recomputations by their facts, the likelihood that each makes a good plan faster.
    """

    places: Rate
    outside: Rate
    repeats: Rate


@dataclass(frozen=True, kw_only=True)
class Update:
    """A sequence of a network's steps with repetitions, its cut, the problem of both, and the assignment."""

    sequence: Order
    cut: Split
    problem: AssignmentProblem
    assignment: Assignment

    @cached_property
    def score(self) -> Score:
        return Score(self.problem.overflow(self.assignment), self.problem.predicted_cycles(self.assignment))


class Updates:
    """Updates of a network.

    whole: the problem with all steps whole, in their order.
    """

    def __init__(self, whole: AssignmentProblem, segments_of: SegmentsOf, rates: Rates | None = None) -> None:
        self.whole, self.rates = whole, rates
        self.segments_of = cache(segments_of)

    def fastest(self) -> tuple[Update, Update]:
        """Return the fastest update found, and the unchanged network.

        For networks with many steps, only the proposal is compared with the unchanged network.
        """
        found = self.searched() if len(self.whole.steps) <= MOST_STEPS else [self.uncut(self._places)]
        return min((*found, self.proposal()) if self.rates else found, key=_rank), found[-1]

    def searched(self) -> list[Update]:
        """Return the updates whose assignments are searched, by rank, with the unchanged network last."""
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
        """Return the unchanged network with an assignment."""
        return self._update(*self._uncut(), places)

    def ranked(self, repeated: tuple[Rerun, ...], cuts: CutsOf) -> list[Update]:
        """Return cuts with some recomputations, each with the greedy assignment, the fastest first."""
        sequence = sequence_of(len(self.whole.steps), repeated)
        found = dict.fromkeys(cuts(sequence))
        return sorted((self._update(sequence, cut, assign_greedily) for cut in found), key=_rank)

    def proposal(self) -> Update:
        """Return the proposal of a learned cost model: the recomputations, the cut and the assignment that it expects
        to be fast.

        The cut or the recomputations are dropped where that is faster. For a small network, every cut is tried.
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
        """Yield cuts that may be fast.

        These are no cut, the cuts of least expected time, and the cheapest cut within each budget of bytes.
        """
        yield _uncut(self.segments_of(sequence))
        yield from self.timed_cuts(sequence)
        yield from frontier(self.segments_of(sequence))

    def timed_cuts(self, sequence: Order) -> Iterator[Split]:
        """Yield cuts of least expected time."""
        segments, times = self.segments_of(sequence), self._times(sequence)
        for share in SHARES:
            yield times.fastest(segments, lambda ending, share=share: times.outside(ending, share))

    def likely(self) -> list[Rerun]:
        """Return the recomputations that a learned cost model expects to be worthwhile."""
        assert self.rates is not None, "a guide expects"
        found = promising(self.whole)[:MOST_REPEATS]
        if not found:
            return []
        rated = self.rates.repeats(repeats.facts_of(self.whole, found))
        return [repeat for repeat, rate in zip(found, rated.tolist(), strict=True) if rate >= LIKELY]

    def problem(self, sequence: Order, cut: Split) -> AssignmentProblem:
        """Return the problem of a cut sequence."""
        return cut_problem(repeated_problem(self.whole, sequence), self.segments_of(sequence), cut.segments)[0]

    def _times(self, sequence: Order) -> SegmentTimes:
        return SegmentTimes(repeated_problem(self.whole, sequence))

    def _places(self, problem: AssignmentProblem) -> Assignment:
        """Return the assignment of the search, or of a learned cost model where that is faster."""
        return assign(problem, self.rates.places if self.rates else None)

    def _uncut(self) -> tuple[Order, Split]:
        """Return the unchanged network."""
        sequence = sequence_of(len(self.whole.steps), ())
        return sequence, _uncut(self.segments_of(sequence))

    def _update(self, sequence: Order, cut: Split, places: Places) -> Update:
        problem = self.problem(sequence, cut)
        return Update(sequence=sequence, cut=cut, problem=problem, assignment=places(problem))


def _uncut(segments: Segments) -> Split:
    """Return the cut with every step whole."""
    return Split(segments=tuple(segments.alone(index) for index in range(len(segments.graph.nodes))))


def _expected(times: SegmentTimes, rates: Rates) -> Outside:
    """Return the fraction of the operands of segments that a learned cost model expects in the default memory."""
    return lambda ending: np.clip(rates.outside(cut_facts.facts_of(times, ending)), 0, 1)


def _rank(update: Update) -> Score:
    return update.score
