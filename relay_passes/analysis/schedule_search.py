"""Orders of a directed acyclic graph whose peak of live bytes is least: a beam, then a proof or something better.

A state is the set of nodes run so far; what is alive follows from it. Two prefixes over the same set differ only in
their peaks, so one of them is enough. A node that frees at least what it makes, without passing the limit, is run
at once: no order that waits with it is better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BEAM = 48
MOST_STATES = 60_000


@dataclass(frozen=True, kw_only=True)
class Node:
    """reads, writes: value numbers. extra_bytes: scratch while it runs. shared_bytes: value read -> bytes that the
    output shares with it if the value dies here."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    extra_bytes: int = 0
    shared_bytes: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes in an order that works; sizes of values in bytes; values that are there before and needed at the end."""

    nodes: tuple[Node, ...]
    sizes: tuple[int, ...]
    inputs: frozenset[int]
    outputs: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """An order of node numbers, its peak, and whether no order has a lower one."""

    order: tuple[int, ...]
    peak_bytes: int
    proved: bool


@dataclass(frozen=True)
class _State:
    done: int
    ready: int
    live: int
    peak: int
    last: int
    before: _State | None

    def order(self) -> tuple[int, ...]:
        found: list[int] = []
        state: _State | None = self
        while state is not None and state.before is not None:
            found.append(state.last)
            state = state.before
        return tuple(reversed(found))


def schedule(graph: Graph) -> Schedule:
    """The best order found, never worse than the one given."""
    search = _Search(graph)
    given = search.replay(range(len(graph.nodes)))
    best = min(given, search.beam() or given, key=lambda state: state.peak)
    proved = best.peak == search.lower_bound()
    while not proved:
        better, complete = search.exhaust(best.peak - 1)
        if better is None:
            proved = complete
            break
        best = better
    order = tuple(range(len(graph.nodes))) if best.peak == given.peak else best.order()
    return Schedule(order=order, peak_bytes=best.peak, proved=proved)


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.graph, count = graph, len(graph.nodes)
        producer = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
        self.readers = [0] * len(graph.sizes)
        self.needs = [0] * count
        self.followers: list[list[int]] = [[] for _ in range(count)]
        for index, node in enumerate(graph.nodes):
            for value in dict.fromkeys(node.reads):
                self.readers[value] |= 1 << index
                if value in producer:
                    self.needs[index] |= 1 << producer[value]
                    self.followers[producer[value]].append(index)
        self.everything = (1 << count) - 1

    def start(self) -> _State:
        ready = sum(1 << index for index, needs in enumerate(self.needs) if not needs)
        live = sum(self.graph.sizes[value] for value in self.graph.inputs)
        return _State(0, ready, live, live, -1, None)

    def lower_bound(self) -> int:
        """The largest single step, whatever the order: what it reads, writes, and needs besides."""
        bound = self.start().peak
        for node in self.graph.nodes:
            own = sum(self.graph.sizes[value] for value in {*node.reads, *node.writes}) + node.extra_bytes
            may_die = [v for v in node.reads if self.readers[v] and v not in self.graph.outputs]
            bound = max(bound, own - max((node.shared_bytes.get(value, 0) for value in may_die), default=0))
        return bound

    def step(self, state: _State, index: int) -> _State:
        """The state after running one ready node."""
        graph, node = self.graph, self.graph.nodes[index]
        done = state.done | 1 << index
        live = state.live + sum(graph.sizes[value] for value in node.writes)
        dying = [v for v in set(node.reads) if v not in graph.outputs and not self.readers[v] & ~done]
        shared = max((node.shared_bytes.get(value, 0) for value in dying), default=0)
        peak = max(state.peak, live + node.extra_bytes - shared)
        live -= sum(graph.sizes[value] for value in dying)
        live -= sum(graph.sizes[v] for v in node.writes if not self.readers[v] and v not in graph.outputs)
        ready = state.ready & ~(1 << index)
        for follower in self.followers[index]:
            if not self.needs[follower] & ~done:
                ready |= 1 << follower
        return _State(done, ready, live, peak, index, state)

    def replay(self, order: Sequence[int]) -> _State:
        state = self.start()
        for index in order:
            state = self.step(state, index)
        return state

    def beam(self) -> _State | None:
        """The best of BEAM prefixes kept at each length, by peak, then by what is alive."""
        states = [self.start()]
        for _ in self.graph.nodes:
            found: dict[int, _State] = {}
            for state in states:
                for new in self._next(state, None):
                    known = found.get(new.done)
                    if known is None or new.peak < known.peak:
                        found[new.done] = new
            states = sorted(found.values(), key=lambda s: (s.peak, s.live, s.last))[:BEAM]
        return states[0] if states else None

    def exhaust(self, limit: int) -> tuple[_State | None, bool]:
        """A complete order within `limit` if there is one; and whether all prefixes within it were looked at."""
        states, seen = [self.start()], 0
        while states:
            found: dict[int, _State] = {}
            for state in states:
                for new in self._next(state, limit):
                    if new.done == self.everything:
                        return new, True
                    found.setdefault(new.done, new)
            seen += len(found)
            if seen > MOST_STATES:
                return None, False
            states = list(found.values())
        return None, True

    def _next(self, state: _State, limit: int | None) -> list[_State]:
        """States one node on; only the first that costs nothing, where there is one."""
        bound = state.peak if limit is None else limit
        found: list[_State] = []
        ready = state.ready
        while ready:
            lowest = ready & -ready
            ready ^= lowest
            new = self.step(state, lowest.bit_length() - 1)
            if new.peak <= bound and new.live <= state.live:
                return [new]
            if limit is None or new.peak <= limit:
                found.append(new)
        return found
