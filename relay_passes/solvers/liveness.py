"""Bytes alive at each position of a sequence of nodes, in which a node may stand more than once.

A node that stands there again computes its results again. A read takes what was written last, so a value is alive from
each time it is written to the last read before it is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relay_passes.solvers.graph import Graph


@dataclass(frozen=True, kw_only=True)
class Span:
    """A value from one writing on: positions of the writing, and of each read after it."""

    value: int
    begin: int
    reads: tuple[int, ...]

    @property
    def end(self) -> int:
        return max(self.reads, default=self.begin)


def peak_bytes(graph: Graph, sequence: Sequence[int]) -> int:
    """Most bytes alive at a position of a sequence."""
    return max(live_bytes(graph, sequence), default=sum(graph.sizes[value] for value in graph.inputs))


def live_bytes(graph: Graph, sequence: Sequence[int]) -> list[int]:
    """Bytes alive at each position, the running node's reads, results and scratch included."""
    return profile(graph, sequence, spans_of(graph, sequence))


def spans_of(graph: Graph, sequence: Sequence[int]) -> list[Span]:
    """Spans of all values, one from each write on."""
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
