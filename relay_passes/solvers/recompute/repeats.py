"""Repeats that could be part of a plan: what waits at a position, made again before its next reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from relay_passes.solvers.graph import Graph, Span

DEEPEST = 4
"""Generations of inputs that one repeat may compute again, too."""


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """Nodes to run again before a position, and about how much of the excess that removes.

    size: bytes of the value that then need not wait from position `last` on. missing_bytes: of what stays longer.
    """

    nodes: tuple[int, ...]
    before: int
    last: int
    removed: int
    size: int
    missing_bytes: int

    def cost(self, costs: Sequence[int]) -> int:
        return sum(costs[node] for node in self.nodes)

    def within(self, sequence: Sequence[int]) -> list[int]:
        return [*sequence[: self.before], *self.nodes, *sequence[self.before :]]


def repeats_at(graph: Graph, spans: Sequence[Span], live: np.ndarray, peak: int, budget_bytes: int) -> Iterator[Repeat]:
    """Repeats of makers of values that wait at a position, before the next reader, with less or more of their inputs.

    Removed bytes are estimated on the given profile: the value is gone while it waits, its inputs stay longer.
    """
    makers = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
    alive: dict[int, list[Span]] = {}
    for span in spans:
        alive.setdefault(span.value, []).append(span)
    for span in spans:
        later = [read for read in span.reads if read > peak]
        waits = span.begin < peak and later and peak not in span.reads
        if not waits or span.value not in makers or later[0] == len(live):
            continue
        before = later[0]
        last = max([span.begin, *(read for read in span.reads if read < peak)])
        chain = [makers[span.value]]
        for _ in range(DEEPEST):
            missing = _missing(graph, chain, alive, makers, before)
            first = min((end for _, end in missing), default=last)
            changed = live[min(first, last) + 1 : before].copy()
            changed[last - min(first, last) :] -= graph.sizes[span.value]
            for value, end in missing:
                changed[max(end - min(first, last), 0) :] += graph.sizes[value]
            removed = excess(live[min(first, last) + 1 : before], budget_bytes) - excess(changed, budget_bytes)
            yield Repeat(
                nodes=tuple(chain), before=before, last=last, removed=removed, size=graph.sizes[span.value],
                missing_bytes=sum(graph.sizes[value] for value, _ in missing),
            )  # fmt: skip
            deeper = sorted({makers[value] for value, _ in missing if value in makers})
            if not deeper:
                break
            chain = [*deeper, *chain]


def _missing(
    graph: Graph, chain: Sequence[int], alive: dict[int, list[Span]], makers: dict[int, int], position: int
) -> list[tuple[int, int]]:
    """(value, position of its last read so far) of what a chain reads that is no longer alive at a position."""
    made = {value for node in chain for value in graph.nodes[node].writes}
    needed = dict.fromkeys(value for node in chain for value in graph.nodes[node].reads if value not in made)
    ends = {value: max(span.end for span in alive[value] if span.begin < position) for value in needed}
    return [(value, end) for value, end in ends.items() if end < position]


def promising(repeats: list[Repeat], costs: Sequence[int]) -> list[Repeat]:
    """Repeats by the excess that they are thought to remove for their cost."""
    return sorted(repeats, key=lambda repeat: -repeat.removed / (repeat.cost(costs) + 1))


def excess(live: Sequence[int] | np.ndarray, budget_bytes: int) -> int:
    """Excess of a profile over the budget: a sum of squares, so that its peaks count most."""
    return int((np.maximum(np.asarray(live, dtype=np.int64) - budget_bytes, 0) ** 2).sum())
