"""Networks in which several convolutions or dense layers read one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from benchmarks.networks.graph import Graph


class BranchGraph(Graph):
    """A network with branches under construction."""

    def pool(self, x: str) -> str:
        """The maximum of 3 by 3 pixels, of the same size as its input."""
        return self._node("MaxPool", [x], self.shapes[x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def concat(self, parts: Sequence[str], axis: int = 1) -> str:
        """Tensors one after the other along an axis."""
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[part][axis] for part in parts)
        return self._node("Concat", parts, tuple(shape), axis=axis)

    def rows(self, x: str, columns: int) -> str:
        """[1, K, H, W] -> [1, H W K / columns, columns], pixel by pixel."""
        n, c, h, w = self.shapes[x]
        moved = self._node("Transpose", [x], (n, h, w, c), perm=[0, 2, 3, 1])
        rows = h * w * c // columns
        return self._node("Reshape", [moved, self._integers("shape", [n, rows, columns])], (n, rows, columns))


def inception(name: str, *, width: int = 8, size: int = 24, blocks: int = 3) -> onnx.ModelProto:
    """Some inception blocks (Szegedy et al. 2014): float32[1, 3, size, size] -> 10 classes.

    width: channels of a unit; the branches of a block have 2, 3, 1 and 1 units ahead of their windows.
    """
    graph = BranchGraph(name, (1, 3, size, size), padding="same")
    x = graph.conv("input", 4 * width, 3, stride=2, activation="relu")
    for _ in range(blocks):
        one = graph.conv(x, 2 * width, activation="relu")
        three = graph.conv(graph.conv(x, 3 * width, activation="relu"), 4 * width, 3, activation="relu")
        five = graph.conv(graph.conv(x, width, activation="relu"), width, 5, activation="relu")
        pooled = graph.conv(graph.pool(x), width, activation="relu")
        x = graph.concat([one, three, five, pooled])
    return graph.model(graph.dense(graph.global_pool(x), 10))


def cross_stage(name: str, *, width: int = 32, size: int = 32) -> onnx.ModelProto:
    """Cross-stage partial blocks, as in YOLO (Wang et al. 2019): float32[1, 3, size, size] -> 10 classes.

    Two 1x1 convolutions read the input of a block: one half goes through residual blocks, the other one around them.
    """
    graph = BranchGraph(name, (1, 3, size, size), padding="same")
    x = graph.conv("input", width // 2, 3, stride=2, activation="relu")
    for level in range(2):
        x = graph.conv(x, width << level, 3, stride=2, activation="relu")
        inner, around = (graph.conv(x, width // 2 << level, activation="relu") for _ in range(2))
        hidden = graph.conv(inner, width // 2 << level, activation="relu")
        inner = graph.add(inner, graph.conv(hidden, width // 2 << level, 3, activation="relu"))
        x = graph.conv(graph.concat([inner, around]), width << level, activation="relu")
    return graph.model(graph.dense(graph.global_pool(x), 10))


def detector(name: str, *, width: int = 16, size: int = 64, kernel: int = 1) -> onnx.ModelProto:
    """A small SSD (Liu et al. 2016): boxes and classes of three anchors at each pixel of two scales.

    float32[1, 3, size, size] -> float32[1, anchors, 4 + 3]. kernel: taps of the heads, 1 or 3, along each axis.
    """
    graph = BranchGraph(name, (1, 3, size, size), padding="same")
    x = graph.conv("input", width, 3, stride=2, activation="relu")
    for channels, stride in ((width, 1), (2 * width, 2), (2 * width, 1)):
        x = graph.conv(graph.depthwise(x, 3, stride=stride, activation="relu"), channels, activation="relu")
    boxes, classes = list[str](), list[str]()
    for _ in range(2):
        channels = graph.shapes[x][1]
        x = graph.conv(graph.depthwise(x, 3, stride=2, activation="relu"), 2 * channels, activation="relu")
        boxes.append(graph.rows(graph.conv(x, 3 * 4, kernel), 4))
        classes.append(graph.rows(graph.conv(x, 3 * 3, kernel), 3))
    both = [graph.concat(boxes, 1), graph.concat(classes, 1)]
    return graph.model(graph.concat(both, 2))
