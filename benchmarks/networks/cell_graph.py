"""Layers of searched networks beside those of `Graph`: pools, sums, concatenations, separable and dilated windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from benchmarks.networks.graph import Graph


class CellGraph(Graph):
    """A network of cells under construction; padding is symmetric, normalisation is folded into biases."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        super().__init__(name, shape, padding="symmetric")

    def relu(self, x: str) -> str:
        """max(x, 0)."""
        return self._node("Relu", [x], self.shapes[x])

    def pool(self, x: str, kind: Literal["avg", "max"], kernel: int = 3, *, stride: int = 1) -> str:
        """Mean or maximum over windows; padding does not count."""
        n, c, h, w = self.shapes[x]
        pad = kernel // 2 if kernel % 2 else 0
        shape = (n, c, (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1)
        op = {"avg": "AveragePool", "max": "MaxPool"}[kind]
        return self._node(op, [x], shape, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=[pad] * 4)

    def total(self, parts: Sequence[str]) -> str:
        """The sum of tensors of one shape, as one node."""
        return parts[0] if len(parts) == 1 else self._node("Sum", parts, self.shapes[parts[0]])

    def concat(self, parts: Sequence[str]) -> str:
        """Images of one size, their channels in series."""
        n, _, h, w = self.shapes[parts[0]]
        return self._node("Concat", parts, (n, sum(self.shapes[part][1] for part in parts), h, w), axis=1)

    def separable(self, x: str, channels: int, kernel: int, *, stride: int = 1, dilation: int = 1) -> str:
        """A depthwise convolution, whose window may have holes, and a pointwise one."""
        n, c, h, w = self.shapes[x]
        pad = dilation * (kernel // 2)
        shape = (n, c, *((size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for size in (h, w)))
        weight = self._weight("weight", (c, 1, kernel, kernel), kernel * kernel, gain=1.0)
        y = self._node(
            "Conv", [x, weight, self._bias(c)], shape, kernel_shape=[kernel, kernel], strides=[stride, stride],
            pads=[pad] * 4, dilations=[dilation, dilation], group=c,
        )  # fmt: skip
        return self.conv(y, channels)

    def upscale(self, x: str, channels: int) -> str:
        """A transposed 2x2 convolution of stride 2: twice the height and width."""
        n, c, h, w = self.shapes[x]
        weight = self._weight("weight", (c, channels, 2, 2), c, gain=1.0)
        shape = (n, channels, 2 * h, 2 * w)
        inputs = [x, weight, self._bias(channels)]
        return self._node("ConvTranspose", inputs, shape, kernel_shape=[2, 2], strides=[2, 2])

    def enlarge(self, x: str) -> str:
        """Every pixel four times: twice the height and width."""
        n, c, h, w = self.shapes[x]
        scales = self._constant("scales", np.array([1, 1, 2, 2]))
        sampling = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self._node("Resize", [x, "", scales], (n, c, 2 * h, 2 * w), mode="nearest", **sampling)

    def gate(self, x: str, features: int) -> str:
        """Each channel times a weight that follows from the means of all (squeeze and excitation, Hu et al. 2018)."""
        n, c, _, _ = self.shapes[x]
        weights = self.dense(self.dense(self.global_pool(x), features, activation="relu"), c)
        weights = self._node("Sigmoid", [weights], (n, c))
        shape = self._integers("shape", [n, c, 1, 1])
        return self._node("Mul", [x, self._node("Reshape", [weights, shape], (n, c, 1, 1))], self.shapes[x])
