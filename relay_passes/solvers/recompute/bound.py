"""Bound the cost of recomputation from below, by counting bytes at more and more positions of the order.

At first, bytes count only at the position with the most bytes. The nodes that the cheapest solution repeats are placed
right ahead of their readers. Where that sequence exceeds the budget, bytes count from then on too. Each solution costs
at least as much as the one ahead of it, and no plan that keeps the order of first runs costs less. A solution that
stays within the budget is the cheapest plan. About ten positions are enough on layered graphs of 250 to 500 nodes.

Between two counted positions, the repeated nodes are a set without an order. Each of them reads values kept through the
first position, or results of the same set. The values kept through a position fit in the budget beside its node.
"""

from __future__ import annotations

from bisect import bisect, bisect_left
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from relay_passes.solvers.graph import Graph, live_bytes, peak_bytes
from relay_passes.solvers.recompute.recomputation import Recomputation, repeats_cost
from tvm_ext.core.errors import MissingTool

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("bounds of recomputation need ortools: pip install 'tvm-ext[exact]'.") from None


@dataclass(frozen=True, kw_only=True)
class PlaceProblem:
    """Nodes by their positions in the order.

    makers: the position that writes each value, -1 for an input.
    own_bytes: of each node, its results and scratch, less the most that these may share with a value that dies there.
    """

    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int, ...], ...]
    own_bytes: tuple[int, ...]
    costs: tuple[int, ...]
    sizes: tuple[int, ...]
    makers: Mapping[int, int]
    outputs: frozenset[int]
    budget_bytes: int

    @staticmethod
    def of(graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int) -> PlaceProblem:
        """Return the problem of a graph whose nodes first run in an order. Costs are by node."""
        nodes = [graph.nodes[index] for index in order]
        makers = dict.fromkeys(graph.inputs, -1) | {v: place for place, node in enumerate(nodes) for v in node.writes}
        return PlaceProblem(
            reads=tuple(tuple(dict.fromkeys(node.reads)) for node in nodes),
            writes=tuple(node.writes for node in nodes),
            own_bytes=tuple(
                sum(graph.sizes[value] for value in node.writes)
                + node.extra_bytes - max(node.shared_bytes.values(), default=0)
                for node in nodes
            ),
            costs=tuple(costs[index] for index in order), sizes=graph.sizes, makers=makers, outputs=graph.outputs,
            budget_bytes=budget_bytes,
        )  # fmt: skip

    def needed(self, begin: int, end: int) -> Set[int]:
        """Return the values written up to `begin` that first runs after it read, up to `end`.

        Where `end` is the end of the order, results are included.
        """
        behind = {value for place in range(begin + 1, min(end + 1, len(self.reads))) for value in self.reads[place]}
        return {v for v in (behind | self.outputs if end >= len(self.reads) else behind) if self.makers[v] <= begin}


@dataclass(frozen=True, kw_only=True)
class KeptAtPlaces:
    """A solution.

    kept: for each counted position, the values that exist beside its node's results.
    again: for each part of the order, the positions that run again. Part k lies ahead of counted position k, and the
    last part after all of them.
    at_least: no solution costs less.
    effort: spent, in the solver's own unit.
    """

    kept: tuple[frozenset[int], ...]
    again: tuple[frozenset[int], ...]
    at_least: int
    effort: float


@dataclass(frozen=True, kw_only=True)
class NoneKept:
    """The outcome without a solution.

    at_least, effort: as in `KeptAtPlaces`. at_least is None where no solution exists.
    """

    at_least: int | None
    effort: float


def keep_at(
    problem: PlaceProblem, places: Sequence[int], moments: Collection[tuple[int, int]], below: int, effort: float
) -> KeptAtPlaces | NoneKept:
    """Return the cheapest solution that costs less than `below`, with the bytes counted at ascending positions.

    moments: (position, part), where a node that runs again in a part is counted beside everything kept through the
    part.
    effort: at which the solver ends, in about seconds. Its unit does not depend on the machine.
    """
    program = _Program(problem, places)
    for place, part in sorted(moments):
        program.count_moment(place, part)
    spent = sum(problem.costs[place] * again for (place, _), again in program.again.items())
    program.model.add(spent < below)
    program.model.minimize(spent)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(program.model)
    used = solver.response_proto.deterministic_time
    if status == cp_model.INFEASIBLE:
        return NoneKept(at_least=None, effort=used)
    at_least = max(0, round(solver.best_objective_bound))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return NoneKept(at_least=at_least, effort=used)
    kept = [frozenset(v for v, at in program.kept if at == k and solver.value(program.kept[v, at]))
            for k in range(len(places))]  # fmt: skip
    again = [frozenset(u for u, at in program.again if at == k and solver.value(program.again[u, at]))
             for k in range(len(places) + 1)]  # fmt: skip
    return KeptAtPlaces(kept=tuple(kept), again=tuple(again), at_least=at_least, effort=used)


class _Program:
    """Variables of the model.

    kept: whether a value exists, by value and by the number of a counted position.
    again: whether a node runs again, by its position and a part.
    """

    def __init__(self, problem: PlaceProblem, places: Sequence[int]) -> None:
        self.problem, self.places, self.model = problem, places, cp_model.CpModel()
        used = {value for reads in problem.reads for value in reads} | problem.outputs
        self.values = sorted(used, key=lambda value: (problem.makers[value], value))
        self.kept = {
            (value, k): self.model.new_bool_var("")
            for k, place in enumerate(places) for value in self.values if problem.makers[value] < place
        }  # fmt: skip
        self.again = {
            (node, k + 1): self.model.new_bool_var("") for k, place in enumerate(places) for node in range(place + 1)
        }
        for k in range(len(places)):
            self._stay_within(k)
        for part in range(1, len(places) + 1):
            self._supply(part)

    def _stay_within(self, k: int) -> None:
        """Count the bytes at a position, and require that what its node reads exists."""
        place, problem = self.places[k], self.problem
        there = [(problem.sizes[v], kept) for (v, at), kept in self.kept.items() if at == k]
        self.model.add(sum(size * kept for size, kept in there) + problem.own_bytes[place] <= problem.budget_bytes)
        self.model.add_bool_and([self.kept[value, k] for value in problem.reads[place]])

    def _supply(self, part: int) -> None:
        """Require that each value that a part keeps or reads was kept ahead of the part, or is computed again in it."""
        before = self.places[part - 1]
        is_last = part == len(self.places)
        end = len(self.problem.reads) if is_last else self.places[part]
        for value in self.values:
            if not is_last and self.problem.makers[value] <= before:
                self._available(value, part, [self.kept[value, part].negated()])
        for node in range(before + 1):
            for value in self.problem.reads[node]:
                self._available(value, part, [self.again[node, part].negated()])
        for value in sorted(self.problem.needed(before, end)):
            self._available(value, part, [])

    def _available(self, value: int, part: int, unless: list[cp_model.LiteralT]) -> None:
        """Require a value written up to the start of a part to exist in that part, unless one of `unless` holds."""
        maker = self.problem.makers[value]
        if maker == self.places[part - 1]:
            return
        again = [self.again[maker, part]] if maker >= 0 else []
        self.model.add_bool_or([*unless, self.kept[value, part - 1], *again])

    def count_moment(self, node: int, part: int) -> None:
        """Count the bytes while a node runs again in a part: its own, and everything kept through the part.

        Results of the model are kept through the last part, which lies after all positions.
        """
        problem, before = self.problem, self.places[part - 1]
        own = {*problem.reads[node], *problem.writes[node]}
        through: list[tuple[int, cp_model.IntVar]] = []
        for value in self.values:
            maker = problem.makers[value]
            is_kept = value in problem.outputs if part == len(self.places) else True
            if is_kept and value not in own and maker <= before:
                stays = self.model.new_bool_var("")
                again = [self.again[maker, part]] if maker >= 0 else []
                was_there = [] if maker == before else [self.kept[value, part - 1].negated()]
                goes = [] if part == len(self.places) else [self.kept[value, part].negated()]
                self.model.add_bool_or([stays, *again, *was_there, *goes])
                through.append((problem.sizes[value], stays))
        read_bytes = sum(problem.sizes[value] for value in problem.reads[node])
        self.model.add(
            sum(size * stays for size, stays in through) + read_bytes + problem.own_bytes[node] <= problem.budget_bytes
        ).only_enforce_if(self.again[node, part])


EFFORT = 10.0
"""Total effort of the solver, in its own unit of about seconds."""
MOST_ROUNDS = 20
PLACES_A_ROUND = 3


@dataclass(frozen=True, kw_only=True)
class Bounded:
    """A plan with its bound.

    plan: the cheapest known plan, if any.
    at_least: no plan that keeps the order of first runs costs less; None where no such plan stays within the budget.
    """

    plan: Recomputation | None
    at_least: int | None


def bound_at_places(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int,
    known: Recomputation | None = None, effort: float = EFFORT,
) -> Bounded:  # fmt: skip
    """Return the cheapest plan, or a known plan, and a lower bound of all costs.

    The same problem gives the same result.
    """
    problem = PlaceProblem.of(graph, order, costs, budget_bytes)
    below = known.cost if known else 1 + sum(costs) * len(order)
    live = live_bytes(graph, order)
    places, moments = [live.index(max(live))], set[tuple[int, int]]()
    at_least = 0
    for _ in range(MOST_ROUNDS):
        counted = [(node, bisect_left(places, stage)) for node, stage in sorted(moments)]
        found = keep_at(problem, places, counted, below, effort)
        effort -= found.effort
        if found.at_least is None:
            return Bounded(plan=known, at_least=known and known.cost)
        at_least = max(at_least, min(found.at_least, below))
        if not isinstance(found, KeptAtPlaces):
            break
        runs = _runs(problem, places, found)
        sequence = tuple(order[place] for place in runs)
        above = _Above.of(live_bytes(graph, sequence), runs, budget_bytes)
        if above is None:
            peak, cost = peak_bytes(graph, sequence), repeats_cost(sequence, costs)
            known = Recomputation(sequence=sequence, peak_bytes=peak, cost=cost)
            break
        more, again = above.to_count(places, len(problem.reads))
        if effort <= 0 or (not more and again <= moments):
            break
        places, moments = sorted({*places, *more}), moments | again
    return Bounded(plan=known, at_least=at_least)


def _runs(problem: PlaceProblem, places: Sequence[int], found: KeptAtPlaces) -> list[int]:
    """Return the order with its repetitions.

    A repetition stands right ahead of its reader, or of the position through which its result is kept.
    """
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
    """Append a position that still has to run again, after the positions that it reads."""
    if place in left:
        left.remove(place)
        for value in problem.reads[place]:
            _run_again(problem, problem.makers[value], left, runs)
        runs.append(place)


@dataclass(frozen=True, kw_only=True)
class _Above:
    """The points at which a sequence exceeds the budget.

    firsts: (bytes, position) of first runs.
    repeats: (position, stage) of repetitions.
    stage: the position whose first run follows, or the number of positions after the last first run.
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
        """Return the positions and repetitions to count additionally.

        Of each part this is the worst position. Repetitions follow once all first runs are within the budget.
        """
        worst: dict[int, int] = {}
        for _, place in sorted(self.firsts, reverse=True):
            if place not in places:
                worst.setdefault(bisect(places, place), place)
        more = set(list(worst.values())[:PLACES_A_ROUND])
        if self.firsts:
            return more, set()
        stages = {stage for _, stage in self.repeats}
        return ({stage - 1 for stage in stages} | stages) - {*places, num_places}, set(self.repeats)
