"""Random networks over images, for tests of what may not change a bit: order, splitting, placement."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx
from onnx import helper

from benchmarks.networks.graph import Graph
from benchmarks.networks.quantize import quantized
from tests.support.onnx_models import model_of

NODE = helper.make_node


def image_network(seed: int, *, aspect: int = 1) -> onnx.ModelProto:
    """A chain with side branches: convolutions, depthwise ones, pools, activations, sums and concatenations.

    aspect: columns of an image for each of its rows.

    Behind the image, or the mean over it, every other one has pairs of dense layers, vectors between them mostly wide.
    """
    rng, data = random.Random(seed), np.random.default_rng(seed)
    channels, size = rng.choice([1, 3, 4]), rng.choice([12, 15, 17])
    shapes = {"x": (channels, size, size * aspect)}
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}

    def conv(source: str, out_channels: int, kernel: int, stride: int, groups: int) -> tuple[str, tuple[int, ...]]:
        name, (c, h, w), pad = f"t{len(nodes)}", shapes[source], kernel // 2
        constants[f"{name}.w"] = data.normal(size=(out_channels, c // groups, kernel, kernel)).astype(np.float32)
        constants[f"{name}.b"] = data.normal(size=out_channels).astype(np.float32)
        nodes.append(
            NODE(
                "Conv", [source, f"{name}.w", f"{name}.b"], [name], kernel_shape=[kernel] * 2, strides=[stride] * 2,
                pads=[pad] * 4, group=groups,
            )
        )  # fmt: skip
        return name, (out_channels, (h - 1) // stride + 1, (w - 1) // stride + 1)

    current = "x"
    for _ in range(rng.randint(4, 8)):
        c, h, w = shapes[current]
        kind = rng.choice(["conv", "conv", "depthwise", "pool", "relu", "add", "concat"])
        alike = [name for name, shape in shapes.items() if shape[1:] == (h, w) and name != current]
        same = [name for name in alike if shapes[name] == (c, h, w)]
        if kind == "depthwise" and c > 1:
            name, shape = conv(current, c, rng.choice([3, 5]), rng.choice([1, 2]), c)
        elif kind == "pool" and h > 6:
            name, shape = f"t{len(nodes)}", (c, (h - 1) // 2 + 1, (w - 1) // 2 + 1)
            operator = rng.choice(["MaxPool", "AveragePool"])
            nodes.append(NODE(operator, [current], [name], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
        elif kind == "relu":
            name, shape = f"t{len(nodes)}", (c, h, w)
            nodes.append(NODE("Relu", [current], [name]))
        elif kind == "add" and same:
            name, shape = f"t{len(nodes)}", (c, h, w)
            nodes.append(NODE("Add", [current, rng.choice(same)], [name]))
        elif kind == "concat" and alike:
            other = rng.choice(alike)
            name, shape = f"t{len(nodes)}", (c + shapes[other][0], h, w)
            nodes.append(NODE("Concat", [current, other], [name], axis=1))
        else:
            name, shape = conv(current, rng.choice([3, 8, 9]), rng.choice([1, 3, 5]), rng.choice([1, 1, 2]), 1)
        shapes[name] = shape
        current = name
    if seed % 2 == 0:
        nodes.append(NODE("GlobalAveragePool", [current], ["y"]))
        return model_of(nodes, {"x": (1, *shapes["x"])}, ["y"], constants)
    if seed % 4 == 1:
        nodes.append(NODE("GlobalAveragePool", [current], ["mean"]))
        current, shapes["mean"] = "mean", (shapes[current][0], 1, 1)
    nodes.append(NODE("Flatten", [current], ["features"]))
    pairs, weights = _dense_pairs(seed, math.prod(shapes[current]))
    return model_of([*nodes, *pairs], {"x": (1, *shapes["x"])}, ["y"], constants | weights)


def layer_of_many_weights() -> onnx.ModelProto:
    """An int8 network whose second convolution has 37 KB of weights."""
    graph = Graph("net", (1, 12, 12, 32), padding="same")
    x = graph.conv(graph.channels_first("input"), 64, (3, 3), activation="relu")
    x = graph.conv(x, 64, (3, 3), stride=2, activation="relu")
    return quantized(graph.model(graph.dense(graph.global_pool(x), 10)))


def _dense_pairs(seed: int, features: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """One or two pairs, float32[1, features] in `features` to float32[1, K] in `y`; some vectors no run divides."""
    rng, data = random.Random(seed), np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    current, count = "features", rng.choice([1, 2])

    def gemm(source: str, name: str, depth: int, width: int) -> None:
        constants[f"{name}.w"] = (data.normal(size=(depth, width)) / depth**0.5).astype(np.float32)
        constants[f"{name}.b"] = data.normal(size=width).astype(np.float32)
        nodes.append(NODE("Gemm", [source, f"{name}.w", f"{name}.b"], [name]))

    for pair in range(count):
        widths = [1000, 2048, 3000, 250] if features < 100 else [32, 64, 30]
        width, result = rng.choice(widths), rng.choice([5, 12, 48])
        gemm(current, f"wide{pair}", features, width)
        nodes.append(NODE(rng.choice(["Relu", "Sigmoid", "Tanh"]), [f"wide{pair}"], [f"active{pair}"]))
        current = f"narrow{pair}" if pair < count - 1 else "y"
        gemm(f"active{pair}", current, width, result)
        features = result
    return nodes, constants
