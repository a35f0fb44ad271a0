"""Least cost of recomputation within a budget, by bytes that are counted at more and more places of the order.

The bytes count at the place with the most of them at first. What the cheapest solution runs again is put right before
what reads it; where that goes above the budget, bytes count from then on. Each solution costs at least as much as the
one before, and no plan costs less; one that stays within the budget is the cheapest plan of all. A few places are
enough: on layered graphs of 250 to 500 nodes, about ten.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from relay_passes.solvers.graph import Graph, live_bytes, peak_bytes
from relay_passes.solvers.recompute.place_program import KeptAtPlaces, PlaceProblem, keep_at
from relay_passes.solvers.recompute.search import Recomputation, repeats_cost

EFFORT = 10.0
"""Effort of the solver in all, in its own measure, about seconds."""
MOST_ROUNDS = 20
PLACES_A_ROUND = 3


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """plan: the cheapest known; None for none.

    at_least: no plan that keeps the order of first runs costs less; None where no such plan stays within the budget.
    nearest: the last sequence that costs about as little as any plan, though it may be above the budget somewhere.
    """

    plan: Recomputation | None
    at_least: int | None
    nearest: tuple[int, ...] = ()


def bound_at_places(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int,
    known: Recomputation | None = None, effort: float = EFFORT,
) -> Bounded:  # fmt: skip
    """The cheapest plan, or a known one, and the least that any costs. The same problem gives the same result."""
    problem = PlaceProblem.of(graph, order, costs, budget_bytes)
    below = known.cost if known else 1 + sum(costs) * len(order)
    live = live_bytes(graph, order)
    places, moments = [live.index(max(live))], set[tuple[int, int]]()
    at_least, nearest = 0, ()
    for _ in range(MOST_ROUNDS):
        counted = [(node, bisect_left(places, stage)) for node, stage in sorted(moments)]
        found = keep_at(problem, places, counted, below, effort)
        effort -= found.effort
        if found.at_least is None:
            return Bounded(plan=known, at_least=known and known.cost, nearest=nearest)
        at_least = max(at_least, min(found.at_least, below))
        if not isinstance(found, KeptAtPlaces):
            break
        runs = _runs(problem, places, found)
        nearest = tuple(order[place] for place in runs)
        above = _Above.of(live_bytes(graph, nearest), runs, budget_bytes)
        if above is None:
            peak, cost = peak_bytes(graph, nearest), repeats_cost(nearest, costs)
            known = Recomputation(sequence=nearest, peak_bytes=peak, cost=cost)
            break
        more, again = above.to_count(places, len(problem.reads))
        if effort <= 0 or (not more and again <= moments):
            break
        places, moments = sorted({*places, *more}), moments | again
    return Bounded(plan=known, at_least=at_least, nearest=nearest)


def _runs(problem: PlaceProblem, places: Sequence[int], found: KeptAtPlaces) -> list[int]:
    """The order with what runs again right before what reads it, or before the place through which it is kept."""
    runs: list[int] = []
    for part, again in enumerate(found.again):
        begin = places[part - 1] + 1 if part else 0
        end = places[part] + 1 if part < len(places) else len(problem.reads)
        left = set(again)
        for place in range(begin, end):
            if part < len(places) and place == places[part]:
                for maker in sorted({problem.makers[value] for value in found.kept[part]}):
                    _run_again(problem, maker, left, runs)
            for value in problem.reads[place]:
                _run_again(problem, problem.makers[value], left, runs)
            runs.append(place)
        if part == len(places):
            for maker in sorted(left):
                _run_again(problem, maker, left, runs)
    return runs


def _run_again(problem: PlaceProblem, place: int, left: set[int], runs: list[int]) -> None:
    """Appends a place that is left to run again, behind those that it reads."""
    if place in left:
        left.remove(place)
        for value in problem.reads[place]:
            _run_again(problem, problem.makers[value], left, runs)
        runs.append(place)


@dataclass(frozen=True, kw_only=True)
class _Above:
    """Where a sequence is above the budget: (bytes, place) of first runs, (place, stage) of repeats.

    stage: place whose first run follows; behind the last one, the number of places.
    """

    firsts: tuple[tuple[int, int], ...]
    repeats: tuple[tuple[int, int], ...]

    @staticmethod
    def of(live: Sequence[int], runs: Sequence[int], budget_bytes: int) -> _Above | None:
        firsts, repeats, stage = list[tuple[int, int]](), list[tuple[int, int]](), 0
        for bytes_, place in zip(live, runs, strict=True):
            is_first = place == stage
            if bytes_ > budget_bytes and is_first:
                firsts.append((bytes_, place))
            elif bytes_ > budget_bytes:
                repeats.append((place, stage))
            stage += is_first
        return _Above(firsts=tuple(firsts), repeats=tuple(repeats)) if firsts or repeats else None

    def to_count(self, places: Sequence[int], num_places: int) -> tuple[set[int], set[tuple[int, int]]]:
        """Places at which bytes shall count besides, the worst of each part; repeats, once first runs are within."""
        worst: dict[int, int] = {}
        for _, place in sorted(self.firsts, reverse=True):
            if place not in places:
                worst.setdefault(bisect(places, place), place)
        more = set(list(worst.values())[:PLACES_A_ROUND])
        if self.firsts:
            return more, set()
        stages = {stage for _, stage in self.repeats}
        return ({stage - 1 for stage in stages} | stages) - {*places, num_places}, set(self.repeats)
