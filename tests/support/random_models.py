"""Random ONNX networks: chains and graphs of the layers small vision models are made of, NCHW, float32."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, helper

from tests.support.onnx_models import model_of

Shape = tuple[int, ...]


class Network:
    """Layers appended to values that exist already; every value that nobody reads becomes an output."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, Shape] = {}
        self.read: set[str] = set()

    def layer(self, kind: str, inputs: list[str], shape: Shape, constants: list[np.ndarray], **attributes) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        keys = [f"{name}.{index}" for index in range(len(constants))]
        self.constants |= dict(zip(keys, constants, strict=True))
        self.nodes.append(helper.make_node(kind, [*inputs, *keys], [name], name=f"node/{name}", **attributes))
        self.read |= {*inputs}
        self.shapes[name] = shape
        return name

    def normal(self, *shape: int) -> np.ndarray:
        fan_in = max(int(np.prod(shape[1:])), 1)
        return (self.random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)

    def draw(self, *choices: int) -> int:
        return int(self.random.choice(choices))

    def image(self) -> str:
        """A value of four dimensions, the newest ones more often."""
        images = [name for name, shape in self.shapes.items() if len(shape) == 4]
        return images[-1 - min(int(self.random.geometric(0.6)) - 1, len(images) - 1)]


def random_model(seed: int, num_layers: int = 8) -> onnx.ModelProto:
    """A network of about `num_layers` layers; the same seed gives the same model."""
    net = Network(seed)
    net.shapes["image"] = (1, net.draw(1, 2, 3, 5), net.draw(6, 8, 9), net.draw(5, 8, 11))
    for _ in range(num_layers):
        IMAGE_LAYERS[int(net.random.integers(len(IMAGE_LAYERS)))](net)
    if net.random.random() < 0.7:
        _head(net)
    outputs = [name for name in net.shapes if name not in net.read and name != "image"]
    shape = net.shapes["image"]
    return model_of(net.nodes, {"image": shape}, outputs or [net.nodes[-1].output[0]], net.constants)


def _conv(net: Network) -> None:
    x = net.image()
    batch, channels, height, width = net.shapes[x]
    size, stride, out = net.draw(1, 3, 3, 5), net.draw(1, 1, 2), net.draw(1, 4, 6, 7)
    dilation = net.draw(1, 1, 2) if size == 3 else 1
    pad = dilation * (size // 2)
    weights = [net.normal(out, channels, size, size), net.normal(out)]
    shape = (batch, out, (height - 1) // stride + 1, (width - 1) // stride + 1)
    attributes = {"pads": [pad] * 4, "strides": [stride] * 2, "dilations": [dilation] * 2}
    net.layer("Conv", [x], shape, weights, **attributes)


def _depthwise(net: Network) -> None:
    x = net.image()
    channels = net.shapes[x][1]
    net.layer("Conv", [x], net.shapes[x], [net.normal(channels, 1, 3, 3)], pads=[1] * 4, group=channels)


def _pool(net: Network) -> None:
    x = net.image()
    batch, channels, height, width = net.shapes[x]
    kind = ("MaxPool", "AveragePool")[net.draw(0, 1)]
    shape = (batch, channels, (height - 1) // 2 + 1, (width - 1) // 2 + 1)
    net.layer(kind, [x], shape, [], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)


def _activation(net: Network) -> None:
    x = net.image()
    kind = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Clip")[net.draw(0, 1, 2, 3, 4, 5)]
    net.layer(kind, [x], net.shapes[x], [np.float32(-0.5), np.float32(0.75)] if kind == "Clip" else [])


def _add(net: Network) -> None:
    x = net.image()
    same = [name for name, shape in net.shapes.items() if shape == net.shapes[x] and name != x]
    kind = ("Add", "Mul", "Sub", "Max")[net.draw(0, 1, 2, 3)]
    if same:
        net.layer(kind, [x, same[-1]], net.shapes[x], [])
    else:
        net.layer(kind, [x], net.shapes[x], [net.normal(1, net.shapes[x][1], 1, 1)])


def _concat(net: Network) -> None:
    x = net.image()
    batch, channels, height, width = net.shapes[x]
    fits = [name for name, s in net.shapes.items() if len(s) == 4 and s[2:] == (height, width)]
    other = fits[net.draw(*range(len(fits)))]
    net.layer("Concat", [x, other], (batch, channels + net.shapes[other][1], height, width), [], axis=1)


def _stack(net: Network) -> None:
    """One image below another: channels last, that is one run of bytes behind another."""
    x = net.image()
    batch, channels, height, width = net.shapes[x]
    fits = [name for name, s in net.shapes.items() if len(s) == 4 and (s[1], s[3]) == (channels, width) and name != x]
    below = fits[net.draw(*range(len(fits)))] if fits else net.layer("Relu", [x], net.shapes[x], [])
    net.layer("Concat", [x, below], (batch, channels, height + net.shapes[below][2], width), [], axis=2)


def _slice(net: Network) -> None:
    x = net.image()
    axis = net.draw(1, 2, 3)
    shape = list(net.shapes[x])
    begin = int(net.random.integers(shape[axis]))
    shape[axis] -= begin
    net.layer("Slice", [x], tuple(shape), [np.array([begin]), np.array([10_000]), np.array([axis])])


def _head(net: Network) -> None:
    """Reshape, dense, softmax."""
    x = net.image()
    batch, *rest = net.shapes[x]
    flat = net.layer("Reshape", [x], (batch, int(np.prod(rest))), [np.array([batch, -1])])
    dense = net.layer("MatMul", [flat], (batch, 5), [net.normal(5, int(np.prod(rest))).T.copy()])
    biased = net.layer("Add", [dense], (batch, 5), [net.normal(5)])
    net.layer("Softmax", [biased], (batch, 5), [])


IMAGE_LAYERS = (_conv, _conv, _depthwise, _pool, _activation, _add, _concat, _stack, _slice)
"""Each appends a layer to some image of a network."""
