"""Drawing of the model's graph: layers from top to bottom with few crossings of edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tvm_ext.report.page.drawing import FONT, Rect, shortened
from tvm_ext.report.read_report import Report

MOST_STEPS = 600
"""Largest number of steps in a drawing. A drawing of more steps would not be readable."""
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 212.0, 42.0, 236.0, 70.0, 12.0


@dataclass(frozen=True, kw_only=True)
class DrawnNode:
    """A step, an input or an output. kind: name of the colour of its area. facts: text of its tooltip."""

    kind: str
    area: Rect
    title: str
    text: str
    facts: str


@dataclass(frozen=True, kw_only=True)
class GraphPicture:
    """Drawing of a graph: nodes, edges as SVG paths, and its size. legend: names of colours and their meanings."""

    nodes: Sequence[DrawnNode]
    edges: Sequence[str]
    width: float
    height: float
    legend: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class _Draft:
    kind: str
    title: str
    text: str
    facts: str


_COLOURS = ("intermediate", "state", "weights", "scratch")
"""Colours of processors, in the order of the processors. Copies between memories have a separate colour."""


def graph_picture(report: Report) -> GraphPicture | None:
    """Return the drawing of a model; None for old reports without the tensors that steps read, and for large models."""
    steps: list[Report] = report["steps"]
    if len(steps) > MOST_STEPS or not all("reads" in step for step in steps):
        return None
    processors = list(dict.fromkeys(step["processor"] for step in steps if step["kernel"] != "wait"))
    colours = {name: _COLOURS[min(index, len(_COLOURS) - 1)] for index, name in enumerate(processors)}
    drafts, edges = _graph(report, colours, several=len(processors) > 1)
    layout = layered(len(drafts), edges)
    nodes = [
        DrawnNode(
            kind=draft.kind, title=shortened(draft.title, _WIDTH - 16, FONT + 1),
            text=shortened(draft.text, _WIDTH - 16), facts=draft.facts,
            area=Rect(x=_x(column), y=_y(row), width=_WIDTH, height=_HEIGHT),
        )
        for draft, (column, row) in zip(drafts, layout.nodes, strict=True)
    ]  # fmt: skip
    kinds = {draft.kind for draft in drafts}
    words = {colours[name]: name for name in processors} | {"input": "input", "output": "output"}
    return GraphPicture(
        nodes=nodes, edges=[_path(points) for points in layout.edges],
        width=round(_x(layout.columns - 1) + _WIDTH + _MARGIN, 1),
        height=round(_y(layout.rows - 1) + _HEIGHT + _MARGIN, 1),
        legend=[(kind, text) for kind, text in (*words.items(), ("copy", "copy between memories")) if kind in kinds],
    )  # fmt: skip


def _graph(report: Report, colours: Mapping[str, str], *, several: bool) -> tuple[list[_Draft], list[tuple[int, int]]]:
    """Return nodes and edges. A tensor that is written in parts has an edge from each step that writes a part."""
    roots = {one["c_name"]: one["part_of"] for one in report.get("tensors", ()) if one.get("part_of")}
    drafts: list[_Draft] = []
    edges: dict[tuple[int, int], None] = {}
    writers: dict[str, list[int]] = {}
    for port in report["inputs"]:
        writers[port["c_name"]] = [len(drafts)]
        drafts.append(_port(port, "input"))
    for step in report["steps"]:
        if step["kernel"] == "wait":
            continue
        number = len(drafts)
        for name in step["reads"]:
            edges.update(((writer, number), None) for writer in _sources(name, roots, writers))
        for output in step["outputs"]:
            name = output["c_name"]
            writers[name] = [number]
            if name in roots:
                writers.setdefault(roots[name], []).append(number)
        drafts.append(_step(step, colours, several=several))
    for port in report["outputs"]:
        number = len(drafts)
        edges.update(((writer, number), None) for writer in _sources(port["c_name"], roots, writers))
        drafts.append(_port(port, "output"))
    return drafts, [edge for edge in edges if edge[0] != edge[1]]


def _sources(name: str, roots: Mapping[str, str], writers: Mapping[str, list[int]]) -> list[int]:
    """Return the nodes that wrote a tensor, or else the tensor that it is a part of."""
    return writers.get(name) or writers.get(roots.get(name, ""), [])


def _port(port: Mapping[str, Any], kind: str) -> _Draft:
    text = f"{port['dtype']}[{', '.join(map(str, port['shape']))}]"
    return _Draft(kind=kind, title=port["name"], text=text, facts=f"{kind} {port['name']}\n{text}")


def _step(step: Mapping[str, Any], colours: Mapping[str, str], *, several: bool) -> _Draft:
    is_copy = step["kernel"] in ("dma", "copy")
    shapes = [f"{out['dtype']}[{','.join(map(str, out['shape']))}]" for out in step["outputs"]]
    nodes = ", ".join(step["source_nodes"])
    lines = [
        f"step {step['index']}: {step['name']}", f"kernel {step['kernel']}", f"operators {nodes}" if nodes else "",
        f"writes {', '.join(shapes)}" if shapes else "",
        f"{step['macs']:,} multiply-accumulates" if step["macs"] else "",
        f"on {step['processor']}" if several else "",
    ]  # fmt: skip
    return _Draft(
        kind="copy" if is_copy else colours[step["processor"]], title=f"{step['index']} {step['name']}",
        text=f"{step['kernel']} {shapes[0][shapes[0].find('['):]}" if shapes else step["kernel"],
        facts="\n".join(filter(None, lines)),
    )  # fmt: skip


def _x(column: float) -> float:
    return round(_MARGIN + column * _ACROSS, 1)


def _y(row: int) -> float:
    return _MARGIN + row * _DOWN


def _path(points: Sequence[tuple[float, int]]) -> str:
    """Return a curve from the lower edge of the first node to the upper edge of the last.

    The curve is a vertical line beside the nodes of the rows in between.
    """
    (column, row), middle = points[0], _WIDTH / 2
    parts = [f"M{_x(column) + middle} {_y(row) + _HEIGHT}"]
    gap = _DOWN - _HEIGHT
    for (before, _), (column, row) in pairwise(points):
        begin, end, bend = _x(before) + middle, _x(column) + middle, _y(row) - gap / 2
        parts.append(f"C{begin} {bend} {end} {bend} {end} {_y(row)}")
        if (column, row) != points[-1]:
            parts.append(f"V{_y(row) + _HEIGHT}")
    return "".join(parts)


_SWEEPS = 6
_WAYPOINT = 0.16
"""Width of an edge in a row that it passes, relative to the width of a node."""
_SOURCE = 0.02
"""Weight of a node without predecessors, relative to other nodes. A small weight lets it move to free space."""


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Widths of all nodes, and weights of their wanted positions."""

    widths: Sequence[float]
    weights: Sequence[float]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Layout of a graph.

    nodes: column and row of each node. edges: points of each edge, including those in rows that it passes.
    columns, rows: size of the layout.
    """

    nodes: Sequence[tuple[float, int]]
    edges: Sequence[Sequence[tuple[float, int]]]
    columns: float
    rows: int


def layered(num_nodes: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Return the layout of a graph whose edges go from a lower to a higher number.

    The method is Sugiyama's: rows by longest paths, waypoints for edges over several rows, an order within rows by
    means of neighbours, and then positions.
    """
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
    """Move each node without predecessors to the row above its first successor."""
    led_to = {target for _, target in edges}
    first: dict[int, int] = {}
    for source, target in edges:
        if source not in led_to:
            first[source] = min(first.get(source, row[target]), row[target])
    for source, below in first.items():
        row[source] = below - 1


def _with_waypoints(row: Sequence[int], edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[int]]:
    """Return each edge as a path with a node in every row that it passes, and the rows of all nodes."""
    row_of, paths = list(row), list[list[int]]()
    for source, target in edges:
        path = [source]
        for between in range(row[source] + 1, row[target]):
            path.append(len(row_of))
            row_of.append(between)
        paths.append([*path, target])
    return paths, row_of


def _ordered(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> list[float]:
    """Return positions in each row, ordered by the mean of a node's neighbours, in alternating sweeps down and up."""
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
    """Return positions as close to the mean of each node's neighbours as the other nodes in the row allow."""
    for sweep in range(_SWEEPS):
        order, beside = (rows, above) if sweep % 2 == 0 else (rows[::-1], below)
        for nodes in order:
            wanted = [_mean(place, beside[node] or (node,), sizes.weights) for node in nodes]
            _settle(nodes, wanted, sizes, place)
    return place


def _settle(nodes: list[int], wanted: list[float], sizes: _Sizes, place: list[float]) -> None:
    """Set the positions of a row: least squares from the wanted positions without overlaps.

    Subtracting the offsets `ahead` leaves an isotonic regression, which pooling adjacent violators solves.
    """
    ahead = [0.0]
    for one, other in pairwise(nodes):
        ahead.append(ahead[-1] + (sizes.widths[one] + sizes.widths[other]) / 2)
    runs: list[tuple[float, float, int]] = []  # for nodes that touch: mean wanted position, weight, number of nodes
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
