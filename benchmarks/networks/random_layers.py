"""Networks of random layers, for measuring kernels over the shapes that networks for microcontrollers use."""

from __future__ import annotations

import random
from math import prod

import onnx

from benchmarks.networks.cell_graph import CellGraph
from benchmarks.networks.graph import Activation

CHANNELS = (3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 128)
SIZES = (5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48)
MOST_ELEMENTS = 24_000
"""Limit for one image between layers."""
MOST_MACS = 3_000_000
"""Limit for one layer."""
ACTIVATIONS: tuple[Activation | None, ...] = (None, "relu", "relu6")


def random_layers(name: str, seed: int, *, layers: int = 9) -> onnx.ModelProto:
    """One image through random layers, then through dense ones to a softmax; the same seed gives the same network."""
    rng = random.Random(seed)
    while True:
        shape = (1, rng.choice((1, 3, 4, 8)), rng.choice(SIZES), rng.choice(SIZES))
        if prod(shape) <= MOST_ELEMENTS:
            break
    graph = CellGraph(name, shape)
    x = "input"
    while layers:
        y = _layer(graph, x, rng)
        if y is not None:
            x, layers = y, layers - 1
    x = graph.global_pool(x)
    for _ in range(rng.randint(0, 2)):
        x = graph.dense(x, rng.choice((8, 16, 24, 50, 64, 100, 128, 256)), activation=rng.choice((None, "relu")))
    return graph.model(graph.softmax(graph.dense(x, rng.choice((2, 6, 10, 12, 35, 100)))))


def _layer(graph: CellGraph, x: str, rng: random.Random) -> str | None:
    """The result of one more layer; None where the one drawn does not suit the image."""
    _, c, h, w = graph.shapes[x]
    kind = rng.choices(
        ("conv", "depthwise", "pointwise", "pool", "add", "concat", "gate", "enlarge", "relu"),
        (5, 5, 6, 2, 2, 1, 1, 1, 0.5),
    )[0]
    if x == "input" and kind in ("pool", "gate", "enlarge", "relu"):  # the quantizer keeps those in float
        return None
    channels, activation = rng.choice(CHANNELS), rng.choice(ACTIVATIONS)
    kernel, stride = rng.choice((3, 3, 3, 5, 7)), rng.choice((1, 1, 1, 2))
    outputs = (h // stride) * (w // stride)
    if (min(h, w) < kernel and kind in ("conv", "depthwise")) or (
        kind in ("conv", "pointwise") and channels * outputs > MOST_ELEMENTS
    ):
        return None
    if kind == "conv":
        window = rng.choice(((kernel, kernel), (kernel, kernel), (1, kernel), (kernel, 1)))
        if c * channels * outputs * prod(window) > MOST_MACS:
            return None
        return graph.conv(x, channels, window, stride=stride, activation=activation)
    if kind == "depthwise":
        return graph.depthwise(x, kernel, stride=stride, activation=activation)
    if kind == "pointwise":
        return graph.conv(x, channels, activation=activation) if c * channels * h * w <= MOST_MACS else None
    if kind == "pool" and min(h, w) >= 4:
        return graph.pool(x, rng.choice(("avg", "max")), rng.choice((2, 3)), stride=rng.choice((1, 2)))
    if kind == "add" and min(h, w) >= 3:
        y = graph.depthwise(x, 3, activation=activation)
        return graph.add(x, y, activation=rng.choice((None, "relu")))
    if kind == "concat" and min(h, w) >= 3 and c * h * w * 2 <= MOST_ELEMENTS:
        return graph.concat([x, graph.depthwise(x, 3)])
    if kind == "gate":
        return graph.gate(x, max(c // 4, 2))
    if kind == "enlarge" and c * h * w * 4 <= MOST_ELEMENTS:
        return graph.enlarge(x)
    return graph.relu(x) if kind == "relu" else None
