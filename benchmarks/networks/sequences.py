"""Drawn networks over time, each in three forms: sequences [N, C, T], and images of one row or of one column."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Literal

import numpy as np
import onnx

from benchmarks.networks.graph import Graph

Form = Literal["sequence", "row", "column"]
FORMS: tuple[Form, ...] = ("sequence", "row", "column")
"""Activations are [1, C, T], [1, C, 1, T] or [1, C, T, 1]."""


class SequenceGraph(Graph):
    """A network over time under construction. Its weights depend on the name, and not on the form."""

    def __init__(self, name: str, form: Form, channels: int, steps: int) -> None:
        self.form: Form = form
        super().__init__(name, (1, channels, *self._over_time(steps, 1)), padding="same")
        self._random = np.random.default_rng(zlib.crc32(name.encode()))

    def steps(self, x: str) -> int:
        """Number of time steps of a tensor."""
        return prod(self.shapes[x][2:])

    def window(
        self, x: str, channels: int, kernel: int = 1, *, stride: int = 1, dilation: int = 1, groups: int = 1,
        causal: bool = False,
    ) -> str:  # fmt: skip
        """A convolution with bias. causal: no output depends on later steps."""
        depth, reach = self.shapes[x][1], (kernel - 1) * dilation
        before = reach if causal else reach // 2
        fan_in = depth // groups * kernel
        weight = self._weight("weight", (channels, depth // groups, *self._over_time(kernel, 1)), fan_in, gain=2.0)
        out = (self.steps(x) - 1) // stride + 1
        return self._node(
            "Conv", [x, weight, self._bias(channels)], (1, channels, *self._over_time(out, 1)),
            kernel_shape=self._over_time(kernel, 1), strides=self._over_time(stride, 1), group=groups,
            dilations=self._over_time(dilation, 1),
            pads=[*self._over_time(before, 0), *self._over_time(reach - before, 0)],
        )  # fmt: skip

    def pool(self, x: str, size: int) -> str:
        """The maximum of `size` steps at a time."""
        out = self._over_time(self.steps(x) // size, 1)
        window = {"kernel_shape": self._over_time(size, 1), "strides": self._over_time(size, 1)}
        return self._node("MaxPool", [x], (1, self.shapes[x][1], *out), **window)

    def upscale(self, x: str, channels: int) -> str:
        """A transposed convolution of two taps and stride 2: twice the steps."""
        depth = self.shapes[x][1]
        weight = self._weight("weight", (depth, channels, *self._over_time(2, 1)), depth, gain=1.0)
        window = {"kernel_shape": self._over_time(2, 1), "strides": self._over_time(2, 1)}
        shape = (1, channels, *self._over_time(2 * self.steps(x), 1))
        return self._node("ConvTranspose", [x, weight, self._bias(channels)], shape, **window)

    def each(self, operator: str, *parts: str) -> str:
        """An element-wise operator."""
        return self._node(operator, parts, self.shapes[parts[0]])

    def concat(self, parts: Sequence[str]) -> str:
        """Channels in series."""
        _, _, *time = self.shapes[parts[0]]
        return self._node("Concat", parts, (1, sum(self.shapes[part][1] for part in parts), *time), axis=1)

    def classes(self, x: str, count: int) -> str:
        """The mean over time and a dense layer."""
        depth = self.shapes[x][1]
        pooled = self._node("GlobalAveragePool", [x], (1, depth, *self._over_time(1, 1)))
        return self.dense(self._node("Flatten", [pooled], (1, depth), axis=1), count)

    def _over_time(self, along: int, across: int) -> tuple[int, ...]:
        return {"sequence": (along,), "row": (across, along), "column": (along, across)}[self.form]


def tcn(name: str, form: Form, random: np.random.Generator) -> onnx.ModelProto:
    """Residual blocks of two causal convolutions whose dilation doubles (Bai et al. 2018)."""
    channels, kernel = int(random.choice((8, 12, 16, 24))), int(random.choice((3, 5)))
    graph = SequenceGraph(name, form, int(random.choice((4, 6, 9))), int(random.choice((64, 96, 128, 200))))
    x = graph.window("input", channels)
    for level in range(int(random.integers(3, 6))):
        y = x
        for _ in range(2):
            y = graph.each("Relu", graph.window(y, channels, kernel, dilation=1 << level, causal=True))
        x = graph.each("Relu", graph.each("Add", x, y))
    return graph.model(graph.classes(x, 6))


def wavenet(name: str, form: Form, random: np.random.Generator) -> onnx.ModelProto:
    """Gated causal convolutions of two taps with residual sums and skips (van den Oord et al. 2016)."""
    channels = int(random.choice((8, 12, 16)))
    graph = SequenceGraph(name, form, 1, int(random.choice((128, 256, 400))))
    x, skips = graph.window("input", channels), list[str]()
    for level in range(int(random.integers(3, 6))):
        taps = [graph.window(x, channels, 2, dilation=1 << level, causal=True) for _ in range(2)]
        gated = graph.each("Mul", graph.each("Tanh", taps[0]), graph.each("Sigmoid", taps[1]))
        skips.append(graph.window(gated, channels))
        x = graph.each("Add", x, graph.window(gated, channels))
    total = skips[0]
    for skip in skips[1:]:
        total = graph.each("Add", total, skip)
    return graph.model(graph.window(graph.each("Relu", total), 4))


def ecg(name: str, form: Form, random: np.random.Generator) -> onnx.ModelProto:
    """Convolutions and pools over a long signal of one or two leads."""
    graph = SequenceGraph(name, form, int(random.integers(1, 3)), int(random.choice((512, 1024, 1536))))
    x, channels = "input", int(random.choice((8, 12, 16)))
    for _ in range(int(random.integers(3, 6))):
        x = graph.pool(graph.each("Relu", graph.window(x, channels, int(random.choice((5, 7, 9))))), 2)
        channels += 4
    return graph.model(graph.classes(x, 5))


def gesture(name: str, form: Form, random: np.random.Generator) -> onnx.ModelProto:
    """Depthwise and pointwise convolutions over the six axes of an inertial sensor."""
    graph = SequenceGraph(name, form, 6, int(random.choice((96, 128, 160))))
    channels = int(random.choice((12, 16, 24)))
    x = graph.each("Relu", graph.window("input", channels, 5, stride=2))
    for _ in range(int(random.integers(2, 5))):
        depth = graph.shapes[x][1]
        x = graph.each("Relu", graph.window(x, depth, int(random.choice((3, 5))), groups=depth))
        channels += 8
        x = graph.each("Relu", graph.window(x, channels))
    return graph.model(graph.classes(x, 8))


def unet_1d(name: str, form: Form, random: np.random.Generator) -> onnx.ModelProto:
    """A U-Net over time: a mask for each step."""
    depth, channels = int(random.integers(2, 4)), int(random.choice((8, 12)))
    graph = SequenceGraph(name, form, 2, int(random.choice((128, 256, 512))))
    x, kept = "input", list[str]()
    for level in range(depth):
        kept.append(graph.each("Relu", graph.window(x, channels << level, 5)))
        x = graph.pool(kept[-1], 2)
    x = graph.each("Relu", graph.window(x, channels << depth, 3))
    for level in reversed(range(depth)):
        x = graph.concat([graph.upscale(x, channels << level), kept[level]])
        x = graph.each("Relu", graph.window(x, channels << level, 3))
    return graph.model(graph.each("Sigmoid", graph.window(x, 1)))


KINDS: dict[str, Callable[[str, Form, np.random.Generator], onnx.ModelProto]] = {
    "tcn": tcn, "wavenet": wavenet, "ecg": ecg, "gesture": gesture, "unet_1d": unet_1d
}  # fmt: skip


def drawn(kind: str, seed: int, form: Form) -> onnx.ModelProto:
    """Return a network of a kind in a form. A kind and a seed give the same network in every form."""
    return KINDS[kind](f"{kind}_{seed}", form, np.random.default_rng(seed))
