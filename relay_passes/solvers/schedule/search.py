"""Search the order of a graph with the lowest peak of live bytes.

A state is the set of nodes run so far, which determines the live bytes. Two prefixes over the same set differ only in
their peaks, so a single one is enough. Some nodes may also be run at once, because no order that delays them is better.
Such a chain of nodes, each made ready by the node ahead of it, ends with no more live bytes than at its start, has more
live bytes at every point within, and stays within the limit. (Live bytes are submodular over such sets: whatever else
an order has run by then, having run the chain too leaves no more bytes alive, so the chain can move to the front.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.reordering import anneal_order, tidied

BEAM = 48
MOST_BEAM_STEPS = 2_000_000
"""Number of nodes that the beam search may run. In large graphs with many ready nodes it keeps fewer prefixes."""
MOST_STEPS = 1_200_000
"""Number of nodes that the search for a proof may run, over all its prefixes."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """An order of node numbers with its peak, and a lower bound of all orders.

    The peak is proved least where both are equal.
    """

    order: tuple[int, ...]
    peak_bytes: int
    bound_bytes: int

    @property
    def proved(self) -> bool:
        return self.peak_bytes == self.bound_bytes


class _State(NamedTuple):
    """Sets of nodes as bits: the nodes that have run, and the nodes that may run next."""

    done: int
    ready: int
    live: int
    peak: int
    last: int
    before: _State | None  # type: ignore[misc]

    def order(self) -> tuple[int, ...]:
        found: list[int] = []
        state = self
        while state.before is not None:
            found.append(state.last)
            state = state.before
        return tuple(reversed(found))


def schedule(graph: Graph) -> Schedule:
    """Return the best order found, never worse than the given order."""
    search = _Search(graph)
    given = search.replay(range(len(graph.nodes)))
    best = min(given, search.beam(), key=lambda state: state.peak)
    bound = search.lower_bound()
    while best.peak > bound:
        better, complete = search.exhaust(best.peak - 1)
        if better is None:
            bound = best.peak if complete else bound
            break
        best = better
    order = tuple(range(len(graph.nodes))) if best.peak == given.peak else best.order()
    return Schedule(order=order, peak_bytes=best.peak, bound_bytes=bound)


class _Search:
    def __init__(self, graph: Graph) -> None:
        self.graph, count = graph, len(graph.nodes)
        self.producer = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
        self.readers = [0] * len(graph.sizes)
        self.needs = [0] * count
        self.followers: list[list[int]] = [[] for _ in range(count)]
        for index, node in enumerate(graph.nodes):
            for value in dict.fromkeys(node.reads):
                self.readers[value] |= 1 << index
                maker = self.producer.get(value)
                if maker is not None and not self.needs[index] >> maker & 1:
                    self.needs[index] |= 1 << maker
                    self.followers[maker].append(index)
        self.reads = [tuple(dict.fromkeys(node.reads)) for node in graph.nodes]
        self.made = [sum(graph.sizes[value] for value in node.writes) for node in graph.nodes]
        self.unread = [
            sum(graph.sizes[v] for v in node.writes if not self.readers[v] and v not in graph.outputs)
            for node in graph.nodes
        ]
        self.everything = (1 << count) - 1
        self.steps_left = MOST_STEPS

    def start(self) -> _State:
        ready = sum(1 << index for index, needs in enumerate(self.needs) if not needs)
        live = sum(self.graph.sizes[value] for value in self.graph.inputs)
        return _State(0, ready, live, live, -1, None)

    def lower_bound(self) -> int:
        """Return the largest single step in any order: what a node writes, and what must be alive beside it.

        A value must be alive if an ancestor of the node writes it, and the node or one of its descendants reads it.
        """
        graph, before, after = self.graph, self.ancestors(), self.descendants()
        alive = self._surely_alive(before, after)
        bound = self.start().peak
        for index, node in enumerate(graph.nodes):
            own = self.made[index] + node.extra_bytes + alive[index]
            may_die = [v for v in self.reads[index] if v not in graph.outputs and not self.readers[v] & after[index]]
            bound = max(bound, own - max((node.shared_bytes.get(value, 0) for value in may_die), default=0))
        return bound

    def _surely_alive(self, before: Sequence[int], after: Sequence[int]) -> list[int]:
        """Return the bytes of values that must be alive while each node runs, without what the node itself writes.

        before, after: ancestors and descendants of each node.
        """
        graph, count = self.graph, len(self.graph.nodes)
        alive = np.zeros(count, np.int64)
        for value, size in enumerate(graph.sizes):
            maker = self.producer.get(value)
            if maker is None and value not in graph.inputs:
                continue
            nodes = self.everything if maker is None else after[maker]
            if value not in graph.outputs:
                read_now_or_later = 0
                for reader in _members(self.readers[value]):
                    read_now_or_later |= before[reader] | 1 << reader
                nodes &= read_now_or_later
            if nodes:
                as_bytes = np.frombuffer(nodes.to_bytes(-(-count // 8), "little"), np.uint8)
                alive[np.unpackbits(as_bytes, count=count, bitorder="little").astype(bool)] += size
        return alive.tolist()

    def ancestors(self) -> list[int]:
        """Return the nodes that every order runs ahead of a node, as a bit set for each node."""
        found: list[int] = []
        for needs in self.needs:
            every = needs
            for index in _members(needs):
                every |= found[index]
            found.append(every)
        return found

    def descendants(self) -> list[int]:
        """Return the nodes that every order runs after a node, as a bit set for each node."""
        found = [0] * len(self.graph.nodes)
        for index in reversed(range(len(found))):
            for follower in self.followers[index]:
                found[index] |= found[follower] | 1 << follower
        return found

    def step(self, state: _State, index: int) -> _State:
        """Return the state after running a ready node."""
        graph, node = self.graph, self.graph.nodes[index]
        done = state.done | 1 << index
        live = state.live + self.made[index]
        shared = freed = 0
        for value in self.reads[index]:
            if value not in graph.outputs and not self.readers[value] & ~done:
                freed += graph.sizes[value]
                shared = max(shared, node.shared_bytes.get(value, 0))
        peak = max(state.peak, live + node.extra_bytes - shared)
        ready = state.ready & ~(1 << index)
        for follower in self.followers[index]:
            if not self.needs[follower] & ~done:
                ready |= 1 << follower
        return _State(done, ready, live - freed - self.unread[index], peak, index, state)

    def replay(self, order: Sequence[int]) -> _State:
        state = self.start()
        for index in order:
            state = self.step(state, index)
        return state

    def beam(self) -> _State:
        """Return the best of BEAM prefixes kept at each length, by peak and then by live bytes."""
        waiting: list[dict[int, _State]] = [{} for _ in range(len(self.graph.nodes) + 1)]
        waiting[0][0] = self.start()
        least = self.steps_left - MOST_BEAM_STEPS
        for length, found in enumerate(waiting):
            kept = sorted(found.values(), key=lambda s: (s.peak, s.live, s.last))[:BEAM]
            # A prefix takes about one step for each ready node, and each length has an equal share of the steps left.
            share = max(0, self.steps_left - least) // (len(waiting) - length)
            most = share // max([1, *(state.ready.bit_count() for state in kept)])
            for state in kept[: max(1, most)]:
                for new in self._next(state, None):
                    beside = waiting[new.done.bit_count()]
                    known = beside.get(new.done)
                    if known is None or new.peak < known.peak:
                        beside[new.done] = new
        return min(waiting[-1].values(), key=lambda state: state.peak)

    def exhaust(self, limit: int) -> tuple[_State | None, bool]:
        """Return a complete order within `limit`, if any, and whether all prefixes within it were considered.

        The longest prefix continues first, so that an order is found early.
        """
        start = self.start()
        waiting, seen = [(0, start.live, 0, start)], {0}
        while waiting:
            state = heappop(waiting)[-1]
            if state.done == self.everything:
                return state, True
            if self.steps_left <= 0:
                return None, False
            for new in self._next(state, limit):
                if new.done not in seen:
                    seen.add(new.done)
                    heappush(waiting, (-new.done.bit_count(), new.live, len(seen), new))
        return None, True

    def _next(self, state: _State, limit: int | None) -> list[_State]:
        """Return the next states, or only the first state that costs nothing, if there is one."""
        bound = state.peak if limit is None else limit
        found: list[_State] = []
        for index in _members(state.ready):
            new = self.step(state, index)
            self.steps_left -= 1
            if limit is None or new.peak <= limit:
                found.append(new)
            while new.peak <= bound and new.live > state.live:
                woken = new.ready & ~(new.before.ready if new.before else 0)
                if woken.bit_count() != 1:
                    break
                new = self.step(new, woken.bit_length() - 1)
                self.steps_left -= 1
            if new.peak <= bound and new.live <= state.live:
                return [new]
        return found


def _members(nodes: int) -> Iterator[int]:
    """Yield the numbers of a set, ascending."""
    while nodes:
        lowest = nodes & -nodes
        nodes ^= lowest
        yield lowest.bit_length() - 1


STEPS = (8, 32, 128)
"""Divisors of the peak by which it should fall.

Each divisor is used as long as an order is found, the largest step first.
"""
MOVES_PER_NODE = 500


def least_schedule(graph: Graph) -> Schedule:
    """Return the result of `schedule`, or an order with a lower peak."""
    found = schedule(graph)
    return found if found.proved else annealed_schedule(graph, found)


def annealed_schedule(graph: Graph, found: Schedule) -> Schedule:
    """Return a schedule with a lower peak, or the same schedule."""
    costs, best = [1] * len(graph.nodes), found
    for step in STEPS:
        while not best.proved:
            budget = max(best.peak_bytes - best.peak_bytes // step, best.bound_bytes)
            lower = anneal_order(graph, best.order, costs, budget, moves_per_node=MOVES_PER_NODE, most_repeats=0)
            if lower is None or lower.peak_bytes >= best.peak_bytes:
                break
            best = replace(best, order=lower.sequence, peak_bytes=lower.peak_bytes)
    if best is found:
        return found
    order = tidied(graph, best.order)
    return replace(best, order=order, peak_bytes=peak_bytes(graph, order))
