"""Search a network's update for a platform's memories in the least time: its cuts, recomputations and assignment.

Cuts are first ranked by quick assignments. Recomputations that may pay (`repeats`) are added one after another, as long
as the best cut with them ranks higher. The search for assignments then continues with the highest ranked updates, and
with the unchanged network. The fastest update is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice

from relay_passes.solvers.memories.assignment import Assignment
from relay_passes.solvers.memories.cuts import SegmentTimes, cut_problem
from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from relay_passes.solvers.memories.repeats import Rerun, promising, sequence_of
from relay_passes.solvers.memories.search import assign, assign_quickly
from relay_passes.solvers.memories.state import Score
from relay_passes.solvers.split.search import Split, frontier
from relay_passes.solvers.split.segments import Segments

SHARES = (1.0, 0.8, 0.6, 0.4)
"""Fractions of the fast memory that the operands of row sequences are assumed to find free."""
MOST_SEARCHED = 1
"""Number of updates for which assignments are searched, besides the unchanged network.

Quick assignments rank updates well: the search of a second and a third update would take a third more time, and would
make few networks faster.
"""
MOST_STEPS = 160
"""Most steps for which recomputations and the cheapest cuts within budgets are tried."""
MOST_REPEATS = 4
"""Number of recomputations that are tried, each with the cuts of least expected time."""

Places = Callable[[AssignmentProblem], Assignment]
Order = tuple[int, ...]
"""Steps in the order in which they run, where some may be repeated."""
SegmentsOf = Callable[[Order], Segments]
CutsOf = Callable[[Order], Iterable[Split]]


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
    segments_of: the segments that cuts of a sequence may consist of.
    most_searched: number of updates for which assignments are searched, besides the unchanged network.
    """

    def __init__(
        self, whole: AssignmentProblem, segments_of: SegmentsOf, *, most_searched: int = MOST_SEARCHED
    ) -> None:
        self.whole, self.most_searched = whole, most_searched
        self.segments_of = cache(segments_of)

    def fastest(self) -> tuple[Update, Update]:
        """Return the fastest update found, and the unchanged network."""
        found = self.searched()
        return min(found, key=_rank), found[-1]

    def searched(self) -> list[Update]:
        """Return the updates whose assignments are searched, by rank, with the unchanged network last."""
        uncut = self._uncut()
        ways = ((one.sequence, one.cut) for one in self.ranked())
        best = islice((way for way in ways if way != uncut), self.most_searched)
        return [*(self._update(*way, assign) for way in best), self.uncut(assign)]

    def uncut(self, places: Places) -> Update:
        """Return the unchanged network with an assignment."""
        return self._update(*self._uncut(), places)

    def ranked(self) -> list[Update]:
        """Return updates with quick assignments, the fastest first."""
        steps = len(self.whole.steps)
        cuts = self.cuts if steps <= MOST_STEPS else self.timed_cuts
        found, taken = self.with_repeats((), cuts), list[Rerun]()
        for repeat in promising(self.whole)[:MOST_REPEATS] if steps <= MOST_STEPS else ():
            with_it = self.with_repeats((*taken, repeat), self.timed_cuts)
            if with_it[0].score < found[0].score:
                taken.append(repeat)
                found = sorted([*with_it, *found], key=_rank)
        return found

    def with_repeats(self, repeated: tuple[Rerun, ...], cuts: CutsOf) -> list[Update]:
        """Return cuts with some recomputations, each with a quick assignment, the fastest first."""
        sequence = sequence_of(len(self.whole.steps), repeated)
        found = dict.fromkeys(cuts(sequence))
        return sorted((self._update(sequence, cut, assign_quickly) for cut in found), key=_rank)

    def cuts(self, sequence: Order) -> Iterator[Split]:
        """Yield the cuts of least expected time, and the cheapest cut within each budget of bytes."""
        yield from self.timed_cuts(sequence)
        yield from frontier(self.segments_of(sequence))

    def timed_cuts(self, sequence: Order) -> Iterator[Split]:
        """Yield cuts of least expected time."""
        segments, times = self.segments_of(sequence), SegmentTimes(repeated_problem(self.whole, sequence))
        for share in SHARES:
            yield times.fastest(segments, lambda ending, share=share: times.outside(ending, share))

    def problem(self, sequence: Order, cut: Split) -> AssignmentProblem:
        """Return the problem of a cut sequence."""
        return cut_problem(repeated_problem(self.whole, sequence), self.segments_of(sequence), cut.segments)[0]

    def _uncut(self) -> tuple[Order, Split]:
        """Return the unchanged network."""
        sequence = sequence_of(len(self.whole.steps), ())
        segments = self.segments_of(sequence)
        return sequence, Split(segments=tuple(segments.alone(index) for index in sequence))

    def _update(self, sequence: Order, cut: Split, places: Places) -> Update:
        problem = self.problem(sequence, cut)
        return Update(sequence=sequence, cut=cut, problem=problem, assignment=places(problem))


def _rank(update: Update) -> Score:
    return update.score


def repeated_problem(problem: AssignmentProblem, sequence: Sequence[int]) -> AssignmentProblem:
    """Return the problem of a sequence. A repeated step writes new values, which are read from there on.

    Values have the numbers that `recompute.in_rows.unrolled` gives them.
    """
    sizes, latest = [*problem.sizes], list(range(len(problem.sizes)))
    steps, ran = list[Step](), set[int]()
    for index in sequence:
        step = problem.steps[index]
        reads = {latest[value]: num_bytes for value, num_bytes in step.reads.items()}
        shared = {latest[value]: num_bytes for value, num_bytes in step.shared.items()}
        if index in ran:
            for value in step.writes:
                latest[value] = len(sizes)
                sizes.append(problem.sizes[value])
        ran.add(index)
        writes = {latest[value]: num_bytes for value, num_bytes in step.writes.items()}
        steps.append(replace(step, reads=reads, writes=writes, shared=shared))
    outputs = frozenset(latest[value] for value in problem.outputs)
    return replace(problem, steps=tuple(steps), sizes=tuple(sizes), outputs=outputs)
