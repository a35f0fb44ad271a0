"""Layered drawing of an acyclic graph: longest paths from the top, fewer crossings by barycenters, even columns.

Source: K. Sugiyama, S. Tagawa, M. Toda, Methods for visual understanding of hierarchical system structures, 1981.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SWEEPS = 6
_WAYPOINT = 0.16
"""Width that an edge takes in a row that it passes, where that of a node is 1."""
_SOURCE = 0.02
"""Weight of a node that nothing leads to, beside 1 of others: it goes where there is room."""


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Widths of all nodes, and weights of what they would like."""

    widths: Sequence[float]
    weights: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Columns and rows of nodes, in units of one; of each edge its points, those where it passes other rows included.

    columns: of all rows, so many are needed.
    """

    nodes: Sequence[tuple[float, int]]
    edges: Sequence[Sequence[tuple[float, int]]]
    columns: float
    rows: int


def layered(num_nodes: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Layout of a graph whose edges go from a lower to a higher number."""
    row = [0] * num_nodes
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        row[target] = max(row[target], row[source] + 1)
    _lower_sources(row, edges)
    paths, row_of = _with_waypoints(row, edges)
    rows: list[list[int]] = [[] for _ in range(max(row_of, default=-1) + 1)]
    for node, at in enumerate(row_of):
        rows[at].append(node)
    above: list[list[int]] = [[] for _ in row_of]
    below: list[list[int]] = [[] for _ in row_of]
    for path in paths:
        for source, target in pairwise(path):
            below[source].append(target)
            above[target].append(source)
    place = _ordered(rows, above, below)
    widths = [1.0] * num_nodes + [_WAYPOINT] * (len(row_of) - num_nodes)
    weights = [1.0 if nodes else _SOURCE for nodes in above]
    place = _straightened(rows, above, below, _Sizes(widths=widths, weights=weights), place)
    left = min((at - width / 2 for at, width in zip(place, widths, strict=True)), default=0.0) + 0.5
    place = [at - left for at in place]
    return Layout(
        nodes=[(place[node], row_of[node]) for node in range(num_nodes)],
        edges=[[(place[node], row_of[node]) for node in path] for path in paths],
        columns=max((at + width / 2 for at, width in zip(place, widths, strict=True)), default=0.0) + 0.5,
        rows=len(rows),
    )


def _lower_sources(row: list[int], edges: Sequence[tuple[int, int]]) -> None:
    """Moves nodes that nothing leads to right above the first one that they lead to."""
    led_to = {target for _, target in edges}
    first: dict[int, int] = {}
    for source, target in edges:
        if source not in led_to:
            first[source] = min(first.get(source, row[target]), row[target])
    for source, below in first.items():
        row[source] = below - 1


def _with_waypoints(row: Sequence[int], edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[int]]:
    """Each edge as a path that has a node in every row it passes; and rows of all nodes."""
    row_of, paths = list(row), list[list[int]]()
    for source, target in edges:
        path = [source]
        for between in range(row[source] + 1, row[target]):
            path.append(len(row_of))
            row_of.append(between)
        paths.append([*path, target])
    return paths, row_of


def _ordered(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[float]:
    """Places in each row, by the mean of what a node is connected with, downwards and upwards in turn."""
    place = [0.0] * len(above)
    for nodes in rows:
        for index, node in enumerate(nodes):
            place[node] = float(index)
    for sweep in range(_SWEEPS):
        order, beside = (rows, above) if sweep % 2 == 0 else (rows[::-1], below)
        for nodes in order:
            nodes.sort(key=lambda node: _mean(place, beside[node] or (node,)))
            for index, node in enumerate(nodes):
                place[node] = float(index)
    return place


def _straightened(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], sizes: _Sizes, place: list[float]
) -> list[float]:
    """Places as near to what each node is connected with as its neighbours in the row leave it."""
    for sweep in range(_SWEEPS):
        order, beside = (rows, above) if sweep % 2 == 0 else (rows[::-1], below)
        for nodes in order:
            wanted = [_mean(place, beside[node] or (node,), sizes.weights) for node in nodes]
            _settle(nodes, wanted, sizes, place)
    return place


def _settle(nodes: list[int], wanted: list[float], sizes: _Sizes, place: list[float]) -> None:
    """Sets places of a row: as near to those wanted as they can be with no node over another, by least squares."""
    ahead = [0.0]
    for one, other in pairwise(nodes):
        ahead.append(ahead[-1] + (sizes.widths[one] + sizes.widths[other]) / 2)
    runs: list[tuple[float, float, int]] = []  # mean of what nodes that touch would like, their weight and number
    for node, want, at in zip(nodes, wanted, ahead, strict=True):
        runs.append((want - at, sizes.weights[node], 1))
        while len(runs) > 1 and runs[-2][0] > runs[-1][0]:
            (second, more, new), (first, weight, count) = runs.pop(), runs.pop()
            runs.append(((first * weight + second * more) / (weight + more), weight + more, count + new))
    means = [mean for mean, _, count in runs for _ in range(count)]
    for node, mean, at in zip(nodes, means, ahead, strict=True):
        place[node] = mean + at


def _mean(place: Sequence[float], nodes: Sequence[int], weights: Sequence[float] | None = None) -> float:
    each = [weights[node] if weights else 1.0 for node in nodes]
    return sum(place[node] * weight for node, weight in zip(nodes, each, strict=True)) / sum(each)
