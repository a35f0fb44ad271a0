"""Recomputation on graphs too large for one constraint program: intervals of a sequence, solved one after the other.

An interval is some stages of the order. What lies before and behind it stays; within it, nodes run as they have to, and
those before it may run again. Values that are alive all through the interval, and that nothing promising could make
again, only take their bytes from the budget. So every interval is a problem of a hundred nodes or so, and its solution
takes the place of what stood there where it costs less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relay_passes.solvers.graph import Graph, Node, peak_bytes, spans_of
from relay_passes.solvers.recompute.exact import recompute_exactly
from relay_passes.solvers.recompute.search import Recomputation, repeats_cost

STAGES = 60
"""Stages of one interval; the next one begins in the middle of it."""
MOST_BEFORE = 60
"""Nodes before an interval that may run again in it."""
EFFORT = 2.0
"""Effort of the solver for one interval, in its own measure."""
MOST_INTERVALS = 3


def improve_in_intervals(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int, found: Recomputation
) -> Recomputation:
    """The same or a cheaper sequence within the budget, over the same order of first runs."""
    sequence, tried = list(found.sequence), 0
    for first in _stages(order, sequence, costs):
        if tried == MOST_INTERVALS:
            break
        interval = _Interval.around(order, sequence, first)
        if repeats_cost(sequence, costs) == 0 or interval.own_cost(costs) == 0:
            continue
        tried += 1
        better = _solved(graph, costs, budget_bytes, sequence, interval)
        if better is not None:
            sequence = better
    cost = repeats_cost(sequence, costs)
    if cost >= found.cost:
        return found
    return Recomputation(sequence=tuple(sequence), peak_bytes=peak_bytes(graph, sequence), cost=cost)


def _stages(order: Sequence[int], sequence: Sequence[int], costs: Sequence[int]) -> Iterator[int]:
    """First stages of intervals, those with the dearest repeats first."""
    firsts = range(0, max(len(order) - STAGES // 2, 1), STAGES // 2)
    spent = {first: _Interval.around(order, sequence, first).own_cost(costs) for first in firsts}
    yield from sorted((first for first in firsts if spent[first]), key=lambda first: (-spent[first], first))


@dataclass(frozen=True, kw_only=True)
class _Interval:
    """Positions [begin, end) of a sequence: stages [first, first + STAGES) of the order. runs: what stands there."""

    begin: int
    end: int
    firsts: tuple[int, ...]
    runs: tuple[int, ...]

    @staticmethod
    def around(order: Sequence[int], sequence: Sequence[int], first: int) -> _Interval:
        place = {}
        for position, node in enumerate(sequence):
            place.setdefault(node, position)
        nodes = order[first : first + STAGES]
        begin = place[order[first - 1]] + 1 if first else 0
        end = place[nodes[-1]] + 1
        return _Interval(begin=begin, end=end, firsts=tuple(nodes), runs=tuple(sequence[begin:end]))

    def own_cost(self, costs: Sequence[int]) -> int:
        return sum(costs[node] for node in self.runs) - sum(costs[node] for node in self.firsts)


def _solved(
    graph: Graph, costs: Sequence[int], budget_bytes: int, sequence: list[int], interval: _Interval
) -> list[int] | None:
    """The sequence with something cheaper in an interval; None where nothing was found."""
    spans = spans_of(graph, sequence)
    alive = {span.value for span in spans if span.begin < interval.begin <= span.end}
    needed = {span.value for span in spans if span.begin < interval.end <= span.end}
    again = _candidates(graph, costs, sequence, interval, alive)
    nodes = [*again, *interval.firsts]
    touched = {value for node in nodes for value in (*graph.nodes[node].reads, *graph.nodes[node].writes)}
    waiting = (alive & needed) - touched
    numbers = {value: number for number, value in enumerate(sorted(touched | (alive - waiting)))}

    def numbered(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(numbers[value] for value in values)

    part = Graph(
        nodes=tuple(
            Node(
                reads=numbered(graph.nodes[node].reads), writes=numbered(graph.nodes[node].writes),
                extra_bytes=graph.nodes[node].extra_bytes,
                shared_bytes={numbers[v]: b for v, b in graph.nodes[node].shared_bytes.items()},
            )
            for node in nodes
        ),
        sizes=tuple(graph.sizes[value] for value in numbers),
        inputs=frozenset(numbered(sorted(alive - waiting))),
        outputs=frozenset(numbered(sorted(needed - waiting))),
    )  # fmt: skip
    place = {node: index for index, node in enumerate(nodes)}
    own = tuple(place[node] for node in interval.runs)
    result = recompute_exactly(
        part, range(len(nodes)), [costs[node] for node in nodes],
        budget_bytes - sum(graph.sizes[value] for value in waiting),
        hint=Recomputation(sequence=own, peak_bytes=0, cost=interval.own_cost(costs)), before=len(again), effort=EFFORT,
    )  # fmt: skip
    if result is None or result.cost >= interval.own_cost(costs):
        return None
    better = [*sequence[: interval.begin], *(nodes[index] for index in result.sequence), *sequence[interval.end :]]
    return better if peak_bytes(graph, better) <= budget_bytes else None


def _candidates(
    graph: Graph, costs: Sequence[int], sequence: Sequence[int], interval: _Interval, alive: set[int]
) -> list[int]:
    """Nodes before the interval that may run again in it, in the order they ran: those that do, then the promising.

    Promising is what is alive and large for its cost; and what such nodes read, so that they can run.
    """
    makers = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
    earlier = list(dict.fromkeys(sequence[: interval.begin]))
    before = set(earlier)
    chosen = dict.fromkeys(node for node in interval.runs if node in before)
    makeable = [value for value in alive if makers.get(value) in before]
    makeable.sort(key=lambda value: (-graph.sizes[value] / (costs[makers[value]] + 1), value))
    for value in makeable:
        if len(chosen) >= MOST_BEFORE:
            break
        maker = makers[value]
        missing = [makers[read] for read in graph.nodes[maker].reads if read not in alive and read in makers]
        if len(missing) <= 2:
            chosen |= dict.fromkeys([*(node for node in missing if node in before), maker])
    return [node for node in earlier if node in chosen]
