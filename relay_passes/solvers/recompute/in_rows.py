"""Recompute results so that an order of operators, cut into row sequences, needs fewer bytes.

A repetition whose only reader is in a sequence is a row of a ring. It costs instructions and almost no memory, while
keeping the result costs all its bytes until the last reader. The search considers the segment with the most bytes, and
every value that is alive across it. If the value is computed again right ahead of each later reader, its bytes are free
until then, although its own operands stay alive. The repetitions that promise the most bytes for their cost are tried,
and the best is taken, until the cut is within the budget. Then repetitions that proved unnecessary are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from relay_passes.solvers.graph import Graph, Node
from relay_passes.solvers.recompute.recomputation import Recomputation, repeats_cost
from relay_passes.solvers.split.search import Segment, Split

DEEPEST = 3
"""Number of generations of operands that a repetition may recompute as well."""
TRIED = 4
"""Number of the most promising repetitions whose cut is computed."""
MOST_ROUNDS = 24
MOST_LEFT_OUT = 12
"""Number of repetitions, the most expensive first, whose removal is tried at the end."""

Cut = Callable[[Graph, Sequence[int]], Split]
"""Returns the best split of a graph whose nodes are those of a sequence, in its order."""


def recompute_in_rows(graph: Graph, costs: Sequence[int], budget_bytes: int, cut: Cut) -> Recomputation | None:
    """Return a sequence of the graph's nodes with repetitions whose cut is within the budget, or None if none is found.

    costs: of each node, when it runs again. The sequence keeps the order of first runs, and its peak is that of its
    cut.
    """
    state = _State.of(graph, tuple(range(len(graph.nodes))), cut)
    for _ in range(MOST_ROUNDS):
        if state.split.peak_bytes <= budget_bytes:
            state = _without_needless(state, costs, budget_bytes, cut)
            return Recomputation(
                sequence=state.sequence, peak_bytes=state.split.peak_bytes, cost=repeats_cost(state.sequence, costs)
            )
        better = _improved(state, costs, budget_bytes, cut)
        if better is None:
            return None
        state = better
    return None


def unrolled(graph: Graph, sequence: Sequence[int]) -> Graph:
    """Return the graph of a sequence, in which each run is a node of its own.

    A repeated node writes new values, which are read from there on.
    """
    sizes = list(graph.sizes)
    latest = list(range(len(sizes)))
    ran: set[int] = set()
    nodes: list[Node] = []
    for index in sequence:
        node = graph.nodes[index]
        reads = tuple(latest[value] for value in node.reads)
        shared = {latest[value]: num_bytes for value, num_bytes in node.shared_bytes.items()}
        if index in ran:
            for value in node.writes:
                latest[value] = len(sizes)
                sizes.append(graph.sizes[value])
        ran.add(index)
        writes = tuple(latest[value] for value in node.writes)
        nodes.append(Node(reads=reads, writes=writes, extra_bytes=node.extra_bytes, shared_bytes=shared))
    outputs = frozenset(latest[value] for value in graph.outputs)
    return Graph(nodes=tuple(nodes), sizes=tuple(sizes), inputs=graph.inputs, outputs=outputs)


@dataclass(frozen=True, kw_only=True)
class _State:
    """A sequence over the graph's nodes, the graph that it unrolls to, and the best cut of that graph."""

    graph: Graph
    sequence: tuple[int, ...]
    runs: Graph
    split: Split

    @staticmethod
    def of(graph: Graph, sequence: tuple[int, ...], cut: Cut) -> _State:
        runs = unrolled(graph, sequence)
        return _State(graph=graph, sequence=sequence, runs=runs, split=cut(runs, sequence))


@dataclass(frozen=True, kw_only=True)
class _Repeat:
    """The runs to repeat ahead of some positions, and the bytes that this is expected to free at the peak."""

    chain: tuple[int, ...]
    readers: tuple[int, ...]
    freed_bytes: int

    def within(self, sequence: Sequence[int]) -> tuple[int, ...]:
        again = [sequence[run] for run in self.chain]
        wanted = set(self.readers)
        return tuple(
            node for position, own in enumerate(sequence) for node in ([*again, own] if position in wanted else [own])
        )

    def cost(self, sequence: Sequence[int], costs: Sequence[int]) -> int:
        return sum(costs[sequence[run]] for run in self.chain) * len(self.readers)


def _improved(state: _State, costs: Sequence[int], budget_bytes: int, cut: Cut) -> _State | None:
    """Return the state with the repetition that frees most bytes at the peak for its cost, or None."""
    peak = max(state.split.segments, key=lambda segment: segment.num_bytes)
    excess = peak.num_bytes - budget_bytes
    repeats = sorted(
        _repeats(state.runs, peak),
        key=lambda repeat: -min(repeat.freed_bytes, excess) / (repeat.cost(state.sequence, costs) + 1),
    )
    best: tuple[float, _State] | None = None
    for repeat in repeats[:TRIED]:
        candidate = _State.of(state.graph, repeat.within(state.sequence), cut)
        freed = state.split.peak_bytes - max(candidate.split.peak_bytes, budget_bytes)
        gain = freed / (repeat.cost(state.sequence, costs) + 1)
        if freed > 0 and (best is None or gain > best[0]):
            best = gain, candidate
    return best[1] if best else None


def _repeats(runs: Graph, peak: Segment) -> Iterator[_Repeat]:
    """Yield repetitions of the producers of values alive across the peak, ahead of each later reader.

    Further candidates also repeat more generations of operands, or repeat only ahead of the first later reader, for all
    of them.
    """
    makers = {value: run for run, node in enumerate(runs.nodes) for value in node.writes}
    readers: dict[int, list[int]] = {}
    for run, node in enumerate(runs.nodes):
        for value in dict.fromkeys(node.reads):
            readers.setdefault(value, []).append(run)
    alive = {
        value for value, users in readers.items()
        if makers.get(value, -1) < peak.begin and (users[-1] >= peak.begin or value in runs.outputs)
    } | runs.outputs  # fmt: skip
    for value in sorted(alive - runs.outputs):
        later = tuple(run for run in readers[value] if run >= peak.begin)
        if value not in makers or not later:
            continue
        chain = [makers[value]]
        for _ in range(DEEPEST):
            made = {written for run in chain for written in runs.nodes[run].writes}
            needed = {read for run in chain for read in runs.nodes[run].reads} - made
            kept = sum(runs.sizes[read] for read in needed - alive)
            freed = runs.sizes[value] - kept
            if freed > 0:
                yield _Repeat(chain=tuple(chain), readers=later, freed_bytes=freed)
                if len(later) > 1 and later[0] >= peak.end:
                    yield _Repeat(chain=tuple(chain), readers=later[:1], freed_bytes=freed)
            deeper = sorted({makers[read] for read in needed - alive if read in makers})
            if not deeper:
                break
            chain = sorted({*deeper, *chain})


def _without_needless(state: _State, costs: Sequence[int], budget_bytes: int, cut: Cut) -> _State:
    """Return the state without repetitions that the budget does not need, dropping the most expensive first."""
    seen: set[int] = set()
    repeats = [position for position, node in enumerate(state.sequence) if node in seen or seen.add(node)]
    repeats.sort(key=lambda position: (-costs[state.sequence[position]], -position))
    left_out: set[int] = set()
    for position in repeats[:MOST_LEFT_OUT]:
        fewer = tuple(n for p, n in enumerate(state.sequence) if p not in left_out and p != position)
        candidate = _State.of(state.graph, fewer, cut)
        if candidate.split.peak_bytes <= budget_bytes:
            left_out.add(position)
    kept = tuple(node for position, node in enumerate(state.sequence) if position not in left_out)
    return _State.of(state.graph, kept, cut)
