"""Networks of irregular or nested wiring: randomly wired, U-shaped, densely connected."""

from __future__ import annotations

import random
from collections.abc import Sequence

import onnx

from benchmarks.networks.cell_graph import CellGraph


def watts_strogatz(count: int, neighbours: int, probability: float, seed: int) -> list[tuple[int, int]]:
    """Edges (u, v), u < v, of a small-world graph: a ring with some ends moved (Watts and Strogatz 1998)."""
    rng = random.Random(seed)
    edges = {
        tuple(sorted((node, (node + step) % count))) for step in range(1, neighbours // 2 + 1) for node in range(count)
    }
    for step in range(1, neighbours // 2 + 1):
        for node in range(count):
            old = tuple(sorted((node, (node + step) % count)))
            free = [v for v in range(count) if v != node and tuple(sorted((node, v))) not in edges]
            if old in edges and free and rng.random() < probability:
                edges.remove(old)
                edges.add(tuple(sorted((node, rng.choice(free)))))
    return sorted((u, v) for u, v in edges)


def randwire(
    name: str, *, seed: int, stages: Sequence[int] = (32, 32, 32), channels: int = 78, size: int = 32,
    neighbours: int = 4, probability: float = 0.75,
) -> onnx.ModelProto:  # fmt: skip
    """Xie et al. 2019: each node sums what it reads, rectifies, convolves separably; stages halve the image.

    stages: nodes of each. float32[1, 3, size, size] -> scores of 10 classes.
    """
    graph = CellGraph(name, (1, 3, size, size))
    x = graph.conv("input", channels // 2, 3)
    for stage, count in enumerate(stages):
        edges = watts_strogatz(count, neighbours, probability, seed + stage)
        outputs: list[str] = []
        for node in range(count):
            read = [outputs[u] for u, v in edges if v == node]
            stride = 1 if read else 2
            y = graph.relu(graph.total(read or [x]))
            outputs.append(graph.separable(y, channels, 3, stride=stride))
        unread = sorted(set(range(count)) - {u for u, _ in edges})
        x = graph.total([outputs[node] for node in unread])
        channels *= 2
    return graph.model(graph.dense(graph.global_pool(graph.relu(x)), 10))


def unet(name: str, *, channels: int = 16, depth: int = 3, size: int = 64) -> onnx.ModelProto:
    """Ronneberger et al. 2015, small and padded: float32[1, 3, size, size] -> two scores per pixel."""
    graph = CellGraph(name, (1, 3, size, size))
    x, kept = "input", []
    for level in range(depth):
        x = _twice(graph, x, channels << level)
        kept.append(x)
        x = graph.pool(x, "max", 2, stride=2)
    x = _twice(graph, x, channels << depth)
    for level in reversed(range(depth)):
        x = _twice(graph, graph.concat([kept[level], graph.upscale(x, channels << level)]), channels << level)
    return graph.model(graph.conv(x, 2))


def _twice(graph: CellGraph, x: str, channels: int) -> str:
    return graph.conv(graph.conv(x, channels, 3, activation="relu"), channels, 3, activation="relu")


def dense_block(name: str, *, layers: int = 6, growth: int = 12, size: int = 32) -> onnx.ModelProto:
    """Huang et al. 2017, one block with bottlenecks: float32[1, 3, size, size] -> scores of 10 classes.

    Each layer reads the concatenation of all before it and adds `growth` channels.
    """
    graph = CellGraph(name, (1, 3, size, size))
    parts = [graph.conv("input", 2 * growth, 3)]
    for _ in range(layers):
        x = graph.relu(graph.concat(parts) if len(parts) > 1 else parts[0])
        x = graph.conv(x, 4 * growth, activation="relu")
        parts.append(graph.conv(x, growth, 3))
    return graph.model(graph.dense(graph.global_pool(graph.relu(graph.concat(parts))), 10))


def gated_unet(name: str, *, channels: Sequence[int] = (16, 64, 96, 128), size: int = 64) -> onnx.ModelProto:
    """A U-Net that adds its skips (Chaurasia and Culurciello 2017), its lowest level gated by its own means.

    The gate needs the whole image below before a row of it is known, so the skips wait as a whole; the first of them
    is one small convolution of the input. channels: of each level. float32[1, 3, size, size] -> two scores per pixel.
    """
    graph = CellGraph(name, (1, 3, size, size))
    x, kept = "input", []
    for level, width in enumerate(channels):
        x = graph.conv(x, width, 3, stride=1 if level == 0 else 2, activation="relu")
        kept.append(x)
    x = graph.gate(kept.pop(), channels[-1] // 4)
    for skip in reversed(kept):
        x = graph.add(graph.enlarge(graph.conv(x, graph.shapes[skip][1])), skip, activation="relu")
    return graph.model(graph.conv(x, 2))


def gated_dense_block(
    name: str, *, layers: int = 5, stem: int = 48, growth: int = 8, size: int = 32
) -> onnx.ModelProto:
    """A dense block and its transition, its bottlenecks gated by their own means, behind a wide stem.

    A gate needs the whole bottleneck before a row of it is known: all parts of the block wait for it as a whole.
    float32[1, 3, size, size] -> scores of 10 classes.
    """
    graph = CellGraph(name, (1, 3, size, size))
    parts = [graph.conv("input", stem, 3, activation="relu")]
    for _ in range(layers):
        x = graph.conv(graph.concat(parts) if len(parts) > 1 else parts[0], 4 * growth, activation="relu")
        parts.append(graph.conv(graph.gate(x, growth), growth, 3, activation="relu"))
    x = graph.conv(graph.concat(parts), (stem + layers * growth) // 2, activation="relu")
    return graph.model(graph.dense(graph.global_pool(graph.pool(x, "avg", 2, stride=2)), 10))
