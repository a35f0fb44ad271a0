"""Drawn networks over sequences, in the forms that exporters write: [N, C, T], or images of one row or column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper

from tests.support.onnx_models import model_of

Form = Literal["sequence", "row", "column"]
FORMS: tuple[Form, ...] = ("sequence", "row", "column")
"""Axes [N, C, T], [N, C, 1, T] and [N, C, T, 1]."""


class Network:
    """Writes the nodes of one network in one form. The same seed gives the same weights in every form."""

    def __init__(self, form: Form, seed: int) -> None:
        self.form, self.rng = form, np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def shape(self, channels: int, steps: int) -> tuple[int, ...]:
        """Shape of a tensor of some channels and steps."""
        return {"sequence": (1, channels, steps), "row": (1, channels, 1, steps), "column": (1, channels, steps, 1)}[
            self.form
        ]

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def window(
        self, taps: int, *, stride: int = 1, dilation: int = 1, pads: tuple[int, int] = (0, 0)
    ) -> dict[str, Any]:
        """Attributes of a window over time."""
        before, after = pads
        along = self._along
        found = {"kernel_shape": along(taps), "strides": along(stride), "pads": [*along(before, 0), *along(after, 0)]}
        return found | ({"dilations": along(dilation)} if dilation > 1 else {})

    def _along(self, value: int, other: int = 1) -> list[int]:
        return {"sequence": [value], "row": [other, value], "column": [value, other]}[self.form]

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.constants)}"
        self.constants[name] = array.astype(np.float32)
        return name

    def conv(
        self, x: str, channels: tuple[int, int], taps: int, *, stride: int = 1, dilation: int = 1, groups: int = 1,
        is_causal: bool = False, operator: str = "Conv",
    ) -> str:  # fmt: skip
        """A convolution that keeps the length, or divides it by the stride; transposed, it multiplies the length."""
        before, after = channels
        rows = (before, after // groups) if operator == "ConvTranspose" else (after, before // groups)
        scale = 1 / np.sqrt(before // groups * taps)
        weight = self.constant(self.rng.uniform(-scale, scale, (*rows, *self._along(taps))) * 1.7)
        bias = self.constant(self.rng.uniform(-0.1, 0.1, after))
        reach = (taps - 1) * dilation
        pads = (reach, 0) if is_causal else (reach // 2, reach - reach // 2)
        if operator == "ConvTranspose":
            pads = ((taps - stride) // 2, taps - stride - (taps - stride) // 2)
        window = self.window(taps, stride=stride, dilation=dilation, pads=pads)
        return self.node(operator, x, weight, bias, group=groups, **window)

    def pool(self, x: str, taps: int, operator: str = "MaxPool") -> str:
        return self.node(operator, x, **self.window(taps, stride=taps))

    def classified(self, x: str, channels: int, classes: int) -> str:
        """The mean over time, and a dense layer."""
        flat = self.node("Flatten", self.node("GlobalAveragePool", x))
        weight = self.constant(self.rng.uniform(-0.5, 0.5, (channels, classes)))
        return self.node("MatMul", flat, weight)

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        return model_of(self.nodes, {"x": shape}, [output], self.constants)


def tcn(form: Form, seed: int) -> onnx.ModelProto:
    """Residual blocks of dilated causal convolutions."""
    rng, net = np.random.default_rng(seed), Network(form, seed)
    given, channels, steps = int(rng.integers(1, 9)), int(rng.choice([8, 12, 16, 24])), int(rng.choice([128, 192, 256]))
    x = net.conv("x", (given, channels), 3, is_causal=True)
    for level in range(int(rng.integers(2, 5))):
        y = net.node("Relu", net.conv(x, (channels, channels), 3, dilation=2**level, is_causal=True))
        y = net.conv(y, (channels, channels), 3, dilation=2**level, is_causal=True)
        x = net.node("Relu", net.node("Add", x, y))
    return net.model(net.shape(given, steps), net.classified(x, channels, 6))


def wavenet(form: Form, seed: int) -> onnx.ModelProto:
    """Gated dilated convolutions whose skip connections are added up."""
    rng, net = np.random.default_rng(seed), Network(form, seed)
    channels, steps = int(rng.choice([8, 16])), int(rng.choice([256, 384]))
    x, skips = net.conv("x", (1, channels), 2, is_causal=True), ""
    for level in range(int(rng.integers(2, 5))):
        gate = net.node("Sigmoid", net.conv(x, (channels, channels), 2, dilation=2**level, is_causal=True))
        value = net.node("Tanh", net.conv(x, (channels, channels), 2, dilation=2**level, is_causal=True))
        y = net.node("Mul", gate, value)
        skip = net.conv(y, (channels, channels), 1)
        skips = net.node("Add", skips, skip) if skips else skip
        x = net.node("Add", x, net.conv(y, (channels, channels), 1))
    return net.model(net.shape(1, steps), net.conv(net.node("Relu", skips), (channels, 4), 1))


def ecg(form: Form, seed: int) -> onnx.ModelProto:
    """Long windows with strides and pools, as networks over heart beats have them."""
    rng, net = np.random.default_rng(seed), Network(form, seed)
    channels, steps = int(rng.choice([8, 16])), int(rng.choice([720, 1000, 1440]))
    x = net.node("Relu", net.conv("x", (2, channels), 15, stride=2))
    x = net.pool(x, 2)
    for _ in range(int(rng.integers(2, 4))):
        x = net.node("Relu", net.conv(x, (channels, 2 * channels), 7))
        x, channels = net.pool(x, 2, str(rng.choice(["MaxPool", "AveragePool"]))), 2 * channels
    return net.model(net.shape(2, steps), net.classified(x, channels, 5))


def gesture(form: Form, seed: int) -> onnx.ModelProto:
    """Depthwise separable layers over six axes of motion."""
    rng, net = np.random.default_rng(seed), Network(form, seed)
    channels, steps = int(rng.choice([12, 16, 24])), int(rng.choice([128, 200, 256]))
    x = net.node("Relu", net.conv("x", (6, channels), 5, stride=2))
    for _ in range(int(rng.integers(2, 5))):
        x = net.node("Relu", net.conv(x, (channels, channels), 5, groups=channels))
        x = net.node("Relu", net.conv(x, (channels, channels), 1))
    return net.model(net.shape(6, steps), net.classified(net.pool(x, 2), channels, 8))


def unet(form: Form, seed: int) -> onnx.ModelProto:
    """Down by strides, up by transposed convolutions, with a concatenation at each level."""
    rng, net = np.random.default_rng(seed), Network(form, seed)
    base, steps, depth = int(rng.choice([4, 8])), int(rng.choice([128, 256])), int(rng.integers(2, 4))
    x, levels = net.node("Relu", net.conv("x", (1, base), 5)), list[str]()
    for level in range(depth):
        levels.append(x)
        x = net.node("Relu", net.conv(x, (base << level, base << level + 1), 5, stride=2))
    for level in reversed(range(depth)):
        x = net.node("Relu", net.conv(x, (base << level + 1, base << level), 4, stride=2, operator="ConvTranspose"))
        x = net.node("Concat", x, levels[level], axis=1)
        x = net.node("Relu", net.conv(x, (base << level + 1, base << level), 5))
    return net.model(net.shape(1, steps), net.node("Sigmoid", net.conv(x, (base, 1), 1)))


FAMILIES: dict[str, Callable[[Form, int], onnx.ModelProto]] = {
    "tcn": tcn, "wavenet": wavenet, "ecg": ecg, "gesture": gesture, "unet": unet
}  # fmt: skip
