"""A directed acyclic graph of operators, and the bytes alive at each position of an order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Node:
    """An operator.

    reads, writes: numbers of the values.
    extra_bytes: scratch while the operator runs.
    shared_bytes: for each value read, the bytes that the output shares with it if the value dies here.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    extra_bytes: int = 0
    shared_bytes: Mapping[int, int]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Nodes in a valid order, with the sizes of values in bytes.

    inputs: values that exist at the start.
    outputs: values that are needed at the end.
    """

    nodes: tuple[Node, ...]
    sizes: tuple[int, ...]
    inputs: frozenset[int]
    outputs: frozenset[int]

    def without_bytes_of(self, values: Set[int]) -> Graph:
        """Return the graph for values that lie elsewhere: they take no bytes, and no result overwrites them."""
        nodes = tuple(
            replace(
                node,
                shared_bytes={}
                if values & set(node.writes)
                else {value: shared for value, shared in node.shared_bytes.items() if value not in values},
            )
            for node in self.nodes
        )
        sizes = tuple(0 if value in values else size for value, size in enumerate(self.sizes))
        return replace(self, nodes=nodes, sizes=sizes)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A value from one write on: the position of the write, and the positions of the reads until the next write."""

    value: int
    begin: int
    reads: tuple[int, ...]

    @property
    def end(self) -> int:
        return max(self.reads, default=self.begin)


def peak_bytes(graph: Graph, sequence: Sequence[int]) -> int:
    """Return the most bytes alive at a position of a sequence."""
    return max(live_bytes(graph, sequence), default=sum(graph.sizes[value] for value in graph.inputs))


def live_bytes(graph: Graph, sequence: Sequence[int]) -> list[int]:
    """Return the bytes alive at each position: reads, results and scratch of the running node included."""
    return profile(graph, sequence, spans_of(graph, sequence))


def spans_of(graph: Graph, sequence: Sequence[int]) -> list[Span]:
    """Return the spans of all values, one from each write on."""
    begins = dict.fromkeys(graph.inputs, -1)
    reads: dict[int, list[int]] = {value: [] for value in graph.inputs}
    spans: list[Span] = []

    def close(value: int) -> None:
        if value in begins:
            spans.append(Span(value=value, begin=begins[value], reads=tuple(reads[value])))

    for position, index in enumerate(sequence):
        node = graph.nodes[index]
        for value in dict.fromkeys(node.reads):
            reads[value].append(position)
        for value in node.writes:
            close(value)
            begins[value], reads[value] = position, []
    for value in list(begins):
        if value in graph.outputs:
            reads[value].append(len(sequence))
        close(value)
    return spans


def profile(graph: Graph, sequence: Sequence[int], spans: Sequence[Span]) -> list[int]:
    change = [0] * (len(sequence) + 2)
    dying: dict[tuple[int, int], int] = {}
    for span in spans:
        change[max(span.begin, 0)] += graph.sizes[span.value]
        change[min(span.end, len(sequence)) + 1] -= graph.sizes[span.value]
        dying[span.end, span.value] = span.value
    live, total = [], 0
    for position, index in enumerate(sequence):
        node = graph.nodes[index]
        total += change[position]
        shared = max((b for value, b in node.shared_bytes.items() if (position, value) in dying), default=0)
        live.append(total + node.extra_bytes - shared)
    return live
