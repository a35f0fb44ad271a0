"""Networks found by architecture search, for images of CIFAR-10: a stem, stacks of cells, a classifier.

A cell reads the outputs of the two cells before it (states 0: the one before, 1: the one before that), each brought
to the cell's channels; every pair of steps (operation, state it reads) adds one state. Its output is a
concatenation of states. A reduction cell halves the image and doubles the channels; it stands after each stack but
the last. Batch normalisation is folded; rectifiers stand where the published networks have them.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from benchmarks.networks.cell_graph import CellGraph

Steps = tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """steps: two for each new state. joined: the states whose concatenation is the output."""

    steps: Steps
    joined: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Family:
    """Both kinds of cell, and the stem's channels as a multiple of the first cell's."""

    normal: Cell
    reduction: Cell
    stem_multiple: int


# Liu et al. 2019, the second order search ("DARTS_V2").
DARTS = Family(
    normal=Cell(
        steps=(
            ("sep3", 1), ("sep3", 0), ("sep3", 1), ("sep3", 0), ("sep3", 0), ("skip", 1), ("skip", 1), ("dil3", 2),
        ),
        joined=(2, 3, 4, 5),
    ),
    reduction=Cell(
        steps=(
            ("max3", 1), ("max3", 0), ("skip", 2), ("max3", 0), ("max3", 1), ("skip", 2), ("skip", 2), ("max3", 0),
        ),
        joined=(2, 3, 4, 5),
    ),
    stem_multiple=3,
)  # fmt: skip

# Zoph et al. 2018, figure 4.
NASNET_A = Family(
    normal=Cell(
        steps=(
            ("sep5", 0), ("sep3", 1), ("sep5", 1), ("sep3", 1), ("avg3", 0), ("skip", 1), ("avg3", 1), ("avg3", 1),
            ("sep3", 0), ("skip", 0),
        ),
        joined=(1, 2, 3, 4, 5, 6),
    ),
    reduction=Cell(
        steps=(
            ("sep5", 0), ("sep7", 1), ("max3", 0), ("sep7", 1), ("avg3", 0), ("sep5", 1), ("skip", 3), ("avg3", 2),
            ("sep3", 2), ("max3", 0),
        ),
        joined=(3, 4, 5, 6),
    ),
    stem_multiple=3,
)  # fmt: skip

# Real et al. 2019, figure 5.
AMOEBANET_A = Family(
    normal=Cell(
        steps=(
            ("avg3", 1), ("max3", 0), ("sep3", 1), ("sep5", 2), ("sep3", 1), ("avg3", 3), ("sep3", 0), ("skip", 0),
            ("skip", 1), ("avg3", 0),
        ),
        joined=(4, 5, 6),
    ),
    reduction=Cell(
        steps=(
            ("avg3", 1), ("sep3", 0), ("max3", 1), ("sep7", 2), ("sep7", 1), ("avg3", 0), ("max3", 1), ("max3", 0),
            ("conv7", 1), ("sep3", 5),
        ),
        joined=(3, 4, 6),
    ),
    stem_multiple=3,
)  # fmt: skip


def searched(
    name: str, family: Family, *, cells: int, channels: int, size: int = 32, stacks: int = 3
) -> onnx.ModelProto:
    """`stacks` stacks of `cells` normal cells: float32[1, 3, size, size] -> scores of 10 classes."""
    graph = CellGraph(name, (1, 3, size, size))
    before = last = graph.conv("input", family.stem_multiple * channels, 3)
    for stack in range(stacks):
        for _ in range(cells):
            before, last = last, _cell(graph, family.normal, last, before, channels, 1)
        if stack + 1 < stacks:
            channels *= 2
            before, last = last, _cell(graph, family.reduction, last, before, channels, 2)
    return graph.model(graph.dense(graph.global_pool(graph.relu(last)), 10))


def _cell(graph: CellGraph, cell: Cell, last: str, before: str, channels: int, stride: int) -> str:
    second = (
        _halve(graph, before, channels)
        if graph.shapes[before][2] != graph.shapes[last][2]
        else _project(graph, before, channels)
    )
    states = [_project(graph, last, channels), second]
    for (one, first), (other, second_state) in zip(cell.steps[::2], cell.steps[1::2], strict=True):
        # Only the cell's inputs are of the larger image; what it computed itself is halved already.
        a = _operation(graph, one, states[first], channels, stride if first < 2 else 1)
        b = _operation(graph, other, states[second_state], channels, stride if second_state < 2 else 1)
        states.append(graph.add(a, b))
    return graph.concat([states[state] for state in cell.joined])


def _operation(graph: CellGraph, kind: str, x: str, channels: int, stride: int) -> str:
    size = int(kind[-1]) if kind[-1].isdigit() else 0
    if kind == "skip":
        return x if stride == 1 else _halve(graph, x, channels)
    if kind in ("avg3", "max3"):
        return graph.pool(x, "avg" if kind == "avg3" else "max", size, stride=stride)
    if kind == "dil3":
        return graph.separable(graph.relu(x), channels, size, stride=stride, dilation=2)
    if kind == "conv7":
        y = graph.conv(graph.relu(x), channels, (1, size), stride=stride)
        return graph.conv(y, channels, (size, 1))
    y = graph.separable(graph.relu(x), channels, size, stride=stride)
    return graph.separable(graph.relu(y), channels, size)


def _project(graph: CellGraph, x: str, channels: int) -> str:
    return graph.conv(graph.relu(x), channels)


def _halve(graph: CellGraph, x: str, channels: int) -> str:
    """An image of half the height and width: two strided 1x1 convolutions, each to half of the channels."""
    y = graph.relu(x)
    return graph.concat([graph.conv(y, channels // 2, stride=2), graph.conv(y, channels - channels // 2, stride=2)])
