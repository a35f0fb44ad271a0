"""The cheapest repeats to add to a sequence so that it keeps a budget of live bytes, as a Boolean program over events.

What happens to a value is decided at few positions, its events: where it is read, and where something that reads it may
run again. Between two events it is kept or it is not; at an event it may be made again, for which its inputs have to be
there, which makes the position an event of theirs. Only what waits across an excess of bytes has events, so that the
program is small where little is missing, however long the sequence. Bytes are counted where the sequence's own runs
stand, not at the repeats between them: callers check the result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from relay_passes.solvers.graph import Graph, live_bytes
from relay_passes.solvers.recompute.in_rows import unrolled
from tvm_ext.core.errors import MissingTool

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("exact recomputation needs ortools: pip install 'tvm-ext[exact]'.") from None

MOST_REPEATS = 1600
"""Possible repeats of a program."""
REACHES = ((3, 96), (2, 96), (2, 48), (2, 24), (2, 12))
"""Generations of repeats that may serve one another, and number of values that may be dropped at a position above the
budget, large ones for their cost first. The first that keeps to MOST_REPEATS is taken, or the last."""
EFFORT = 2.0
"""Deterministic time limit of the solver, about seconds: it ends the search without depending on the machine."""

_Events = dict[int, dict[int, tuple[int, int]]]
"""Value -> position -> generations of repeats that may start there, 0 for none, and what they may cost."""


def add_repeats(
    graph: Graph, sequence: Sequence[int], costs: Sequence[int], budget_bytes: int, most_cost: int
) -> list[int] | None:
    """The sequence with the cheapest repeats found that cost no more than `most_cost`; None where there are none."""
    runs = _Runs(unrolled(graph, sequence), [costs[node] for node in sequence], budget_bytes, most_cost)
    events: _Events = {}
    for generations, dropped in REACHES:
        events = runs.events(generations, dropped)
        if sum(left > 0 for places in events.values() for left, _ in places.values()) <= MOST_REPEATS:
            break
    added = _Program(runs, events).solved()
    if added is None:
        return None
    return [sequence[run] for place in range(len(sequence)) for run in (*sorted(added.get(place, ())), place)]


class _Runs:
    """A sequence as a graph of its runs, in order: values are written once."""

    def __init__(self, graph: Graph, costs: Sequence[int], budget_bytes: int, most_cost: int) -> None:
        self.graph, self.costs, self.budget_bytes, self.most_cost = graph, costs, budget_bytes, most_cost
        self.live = live_bytes(graph, range(len(graph.nodes)))
        self.above = [place for place, bytes_ in enumerate(self.live) if bytes_ > budget_bytes]
        self.num_above = [0, *accumulate(int(bytes_ > budget_bytes) for bytes_ in self.live)]
        self.made = {value: place for place, node in enumerate(graph.nodes) for value in node.writes}
        self.reads: dict[int, list[int]] = {value: [] for value in self.made}
        for place, node in enumerate(graph.nodes):
            for value in dict.fromkeys(node.reads):
                if value in self.made:
                    self.reads[value].append(place)
        for value in self.made:
            if value in graph.outputs:
                self.reads[value].append(len(graph.nodes))

    def needs(self, value: int) -> list[int]:
        """Values that the maker of a value reads, and that may have to be made again for it."""
        reads = dict.fromkeys(self.graph.nodes[self.made[value]].reads)
        return [read for read in reads if read in self.made]

    def last(self, value: int) -> int:
        return max([self.made[value], *self.reads[value]])

    def waits(self, value: int, place: int) -> bool:
        """True where something can be decided about a value at a position: it is gone, or waits across an excess."""
        later = bisect_left(self.reads[value], place)
        if later == len(self.reads[value]):
            return True
        before = self.reads[value][later - 1] if later else self.made[value]
        return self._is_above(before, self.reads[value][later]) and self.reads[value][later] != place

    def _is_above(self, begin: int, end: int) -> bool:
        """True where there is an excess between two positions."""
        return self.num_above[end] > self.num_above[begin + 1]

    def events(self, reach: int, dropped: int) -> _Events:
        """Events that follow from the reads before which a value may have been dropped, generation by generation."""
        found: _Events = {}
        open_events = [(value, read, reach, self.most_cost) for value, read in self._droppable(dropped)]
        while open_events:
            value, place, generations, slack = open_events.pop()
            if self.made[value] >= place:
                continue
            cost = self.costs[self.made[value]]
            known = found.setdefault(value, {}).get(place, (-1, -1))
            own = (max(known[0], generations if cost <= slack else 0), max(known[1], slack))
            if own == known:
                continue
            found[value][place] = own
            if own[0] > 0:
                needed = [other for other in self.needs(value) if self.waits(other, place)]
                open_events += [(other, place, own[0] - 1, own[1] - cost) for other in needed]
        return found

    def _droppable(self, dropped: int) -> list[tuple[int, int]]:
        """Values, and the reads up to which they may be gone: some for each position above the budget."""
        waiting: dict[int, list[tuple[float, int, int]]] = defaultdict(list)
        for value, reads in self.reads.items():
            cost = self.costs[self.made[value]]
            for begin, end in zip([self.made[value], *reads], reads, strict=False):
                if cost <= self.most_cost and end < len(self.live) and self._is_above(begin, end):
                    price = -self.graph.sizes[value] / (cost + 1)
                    for place in self.above[bisect_left(self.above, begin + 1) : bisect_left(self.above, end)]:
                        waiting[place].append((price, value, end))
        chosen = {(value, end) for found in waiting.values() for _, value, end in sorted(found)[:dropped]}
        return sorted(chosen)


class _Program:
    """Variables: kept[value, event], from the event before on; again[value, event]. Constant where there is none."""

    def __init__(self, runs: _Runs, events: _Events) -> None:
        self.runs, self.events, self.model = runs, events, cp_model.CpModel()
        self.kept: dict[tuple[int, int], cp_model.IntVar] = {}
        self.again: dict[tuple[int, int], cp_model.IntVar] = {}
        self.changes: dict[int, list[cp_model.LinearExprT]] = defaultdict(list)
        for value in sorted(events):
            self._value(value)
        for (value, place), repeated in self.again.items():
            for needed in runs.needs(value):
                if runs.waits(needed, place):
                    there = self._there(needed, place)
                    self.model.add_bool_or([*there, repeated.negated()])
        for place, bytes_ in enumerate(runs.live):
            if self.changes[place] or bytes_ > runs.budget_bytes:
                self.model.add(sum(self.changes[place]) + bytes_ <= runs.budget_bytes)

    def _there(self, value: int, place: int) -> list[cp_model.IntVar]:
        """Variables of which one must be true for a value to be there for the repeats at one of its events."""
        return [chosen[value, place] for chosen in (self.kept, self.again) if (value, place) in chosen]

    def _value(self, value: int) -> None:
        runs, events = self.runs, self.events[value]
        reads, before = set(runs.reads[value]), runs.made[value]
        for place in sorted({*events, *reads}):
            repeats = events.get(place, (0, 0))[0] > 0
            if repeats or place not in reads:
                kept = self.kept[value, place] = self.model.new_bool_var("")
                if before != runs.made[value] and before not in reads:
                    self.model.add_bool_or([*self._there(value, before), kept.negated()])
                    self._count(value, before, kept)
                for between in range(before + 1, place):
                    self._count(value, between, kept)
                if repeats:
                    self.again[value, place] = self.model.new_bool_var("")
                    self.model.add_at_most_one(self._there(value, place))
                if place in reads:
                    self.model.add_bool_or(self._there(value, place))
            elif before != runs.made[value] and before not in reads:
                self.model.add_bool_or(self._there(value, before))
            before = place

    def _count(self, value: int, place: int, kept: cp_model.IntVar) -> None:
        """Bytes at a run beside those of the sequence as it is, which keeps the value up to its last read."""
        counted = int(place < self.runs.last(value))
        self.changes[place].append(self.runs.graph.sizes[value] * (kept - counted))

    def solved(self) -> dict[int, list[int]] | None:
        """Position -> runs to repeat right before it."""
        cost = sum(self.runs.costs[self.runs.made[value]] * chosen for (value, _), chosen in self.again.items())
        self.model.add(cost <= self.runs.most_cost)
        self.model.minimize(cost)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.max_deterministic_time = EFFORT
        if solver.solve(self.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        found: dict[int, set[int]] = defaultdict(set)
        for (value, place), chosen in self.again.items():
            if solver.value(chosen):
                found[place].add(self.runs.made[value])
        return {place: sorted(runs) for place, runs in found.items()}
