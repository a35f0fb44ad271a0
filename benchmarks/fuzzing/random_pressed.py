"""Random ONNX models that press on what is hard to get right: odd windows in series, branches, heads of attention.

Windows that tiles compute, pads unlike on two sides, groups and dilation, channels of no multiple of a vector; U-Nets,
dense blocks and gates, whose values wait; attention beside LayerNorm and GELU. Layers between are `random_onnx`'s.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from benchmarks.fuzzing.random_onnx import OPSET, Builder
from tests.support.onnx_models import model_of

WINDOWS = ((3, 3), (3, 3), (3, 3), (1, 3), (3, 1), (1, 5), (5, 1), (5, 5), (1, 1), (2, 2), (3, 5), (4, 3))
NONE, ONE = [0, 0, 0, 0], [1, 1]


def random_pressed(seed: int) -> onnx.ModelProto | None:
    """A random model, the same for the same seed; every value that nobody reads is an output. None where none came."""
    net = Builder(seed)
    FAMILIES[int(net.random.integers(len(FAMILIES)))](net)
    inputs = {"image": net.shapes["image"]}
    outputs = [name for name in net.shapes if name not in net.read and name not in inputs]
    return model_of(net.nodes, inputs, outputs, net.constants, opset=OPSET) if outputs else None


def _image(net: Builder) -> str:
    height, width = net.draw(7, 9, 12, 15, 17, 20, 24, 31), net.draw(5, 7, 8, 9, 12, 15, 16, 19)
    net.shapes["image"] = (1, net.draw(1, 1, 2, 3, 3, 4, 5, 6, 8, 16), height, width)
    return "image"


def _conv(
    net: Builder, x: str, channels: int, kernel: tuple[int, int], *, group: int = 1, pads: list[int] | None = None,
    strides: list[int] = ONE, dilations: list[int] = ONE,
) -> str:  # fmt: skip
    """A convolution, or what it reads where the image is too small for it. pads: random where they are not said."""
    reach = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    if pads is None:
        same = [reach[0] // 2, reach[1] // 2, reach[0] - reach[0] // 2, reach[1] - reach[1] // 2]
        any_pads = [int(net.random.integers(0, r + 1)) for r in (*reach, *reach)]
        pads = [same, same, any_pads, NONE, [reach[0], 0, 0, reach[1]]][net.draw(*range(5))]
    constants = [net.normal(channels, net.shapes[x][1] // group, *kernel)]
    constants += [net.normal(channels)] if net.random.random() < 0.8 else []
    made = net.node("Conv", [x], constants, group=group, strides=strides, dilations=dilations, pads=pads)
    return made or x


def _any_conv(net: Builder, x: str) -> str:
    kernel, channels = WINDOWS[int(net.random.integers(len(WINDOWS)))], net.shapes[x][1]
    group = net.draw(*[g for g in (1, 1, 1, 2, channels) if channels % g == 0])
    made = group * net.draw(1, 2, 3, 4) if group > 1 else net.draw(1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16)
    strides = [net.draw(1, 1, 2, 3), net.draw(1, 1, 2)] if net.random.random() < 0.4 else ONE
    dilations = [net.draw(1, 1, 2, 3), net.draw(1, 1, 2)] if net.random.random() < 0.2 else ONE
    return _active(net, _conv(net, x, made, kernel, group=group, strides=strides, dilations=dilations))


def _same(net: Builder, x: str, channels: int) -> str:
    """A layer of windows that leaves an image's rows and columns."""
    high, wide = ((3, 3), (3, 3), (1, 1), (1, 3), (5, 1))[net.draw(*range(5))]
    return _active(net, _conv(net, x, channels, (high, wide), pads=[high // 2, wide // 2] * 2))


def _active(net: Builder, x: str) -> str:
    kind = ("", "Relu", "Relu", "HardSwish", "Sigmoid", "LeakyRelu", "Tanh")[net.draw(*range(7))]
    return (net.node(kind, [x], []) or x) if kind else x


def _pooled(net: Builder, x: str) -> str:
    kernel = [min(net.draw(1, 2, 3, 5), extent) for extent in net.shapes[x][2:]]
    pads = [int(net.random.integers(0, (kernel[i % 2] + 1) // 2)) for i in range(4)]
    strides = [net.draw(1, 2, 3), net.draw(1, 2)]
    kind = ("MaxPool", "AveragePool")[net.draw(0, 1)]
    return net.node(kind, [x], [], kernel_shape=kernel, strides=strides, pads=pads) or x


def _head(net: Builder, x: str) -> None:
    """Nothing, or dense layers behind the image or its mean."""
    way = net.draw(0, 0, 1, 2)
    pooled = (net.node("GlobalAveragePool", [x], []) or x) if way == 1 else x
    elements = int(np.prod(net.shapes[pooled]))
    flat = net.node("Reshape", [pooled], [np.array([1, elements])]) if way and elements < 3000 else None
    if flat:
        net.node("Gemm", [flat], [net.normal(7, elements), net.normal(7)], transB=1)


def _chain(net: Builder) -> None:
    x = _image(net)
    for _ in range(net.draw(1, 2, 3, 4, 5, 6)):
        x = _pooled(net, x) if net.random.random() < 0.12 else _any_conv(net, x)
    _head(net, x)


def _separable(net: Builder) -> None:
    x = _any_conv(net, _image(net))
    for _ in range(net.draw(1, 2, 3)):
        channels, kernel = net.shapes[x][1], WINDOWS[int(net.random.integers(len(WINDOWS)))]
        x = _active(net, _conv(net, x, channels, kernel, group=channels, strides=[net.draw(1, 1, 2)] * 2))
        x = _active(net, _conv(net, x, net.draw(3, 4, 5, 6, 8, 12), (1, 1), pads=NONE))
    _head(net, x)


def _unet(net: Builder) -> None:
    size, channels, skips = net.draw(8, 12, 16, 24), net.draw(3, 4, 6, 8), list[str]()
    net.shapes["image"] = (1, net.draw(1, 2, 3), size, net.draw(8, 12, 16))
    x = "image"
    for _ in range(net.draw(1, 2)):
        x = _same(net, x, channels)
        skips.append(x)
        x = net.node("MaxPool", [x], [], kernel_shape=[2, 2], strides=[2, 2]) or x
    for skip in [_same(net, x, channels), *reversed(skips)][1:]:
        scales = np.array([1, 1, 2, 2], np.float32)
        mode = ("nearest", "linear")[net.draw(0, 0, 1)]
        x = net.node("Resize", [x], [np.zeros(0, np.float32), scales], mode=mode,
                     coordinate_transformation_mode="asymmetric") or x  # fmt: skip
        kind = ("Concat", "Add", "Mul")[net.draw(0, 1, 2)]
        x = net.node(kind, [x, skip], [], **({"axis": 1} if kind == "Concat" else {})) or x
        x = _same(net, x, channels)


def _dense_block(net: Builder) -> None:
    parts, growth = [_same(net, _image(net), net.draw(2, 3, 4, 8))], net.draw(1, 2, 3, 4, 6)
    for _ in range(net.draw(2, 3, 4)):
        parts.append(_same(net, net.node("Concat", parts, [], axis=1) or parts[-1], growth))
    _head(net, net.node("Concat", parts, [], axis=1) or parts[-1])


def _gates(net: Builder) -> None:
    channels = net.draw(2, 3, 4, 6, 8)
    x = _same(net, _image(net), channels)
    for _ in range(net.draw(1, 2, 3)):
        y = _same(net, x, channels)
        source = (net.node("GlobalAveragePool", [y], []) or y) if net.random.random() < 0.5 else y
        gate = net.node(
            ("Sigmoid", "HardSigmoid")[net.draw(0, 1)], [_conv(net, source, channels, (1, 1), pads=NONE)], []
        )
        gated = (net.node("Mul", [y, gate], []) or y) if gate else y
        x = (net.node("Add", [x, gated], []) if gated != x else None) or gated
    _head(net, x)


def _linear(net: Builder, x: str, width: int) -> str:
    product = net.node("MatMul", [x], [net.normal(width, net.shapes[x][-1]).T.copy()]) or x
    return net.node("Add", [product], [net.normal(net.shapes[product][-1])]) or product


def _attention(net: Builder) -> None:
    tokens, heads, size = net.draw(3, 5, 7, 8, 12, 17), net.draw(1, 2, 3, 4), net.draw(2, 3, 4, 5, 8)
    width = heads * size
    net.shapes["image"] = (1, tokens, width)
    scaled = net.node("LayerNormalization", ["image"], [1 + net.normal(width) / 8, net.normal(width)], axis=-1)
    read = scaled if scaled and net.random.random() < 0.7 else "image"

    def split(order: list[int]) -> str:
        parts = net.node("Reshape", [_linear(net, read, width)], [np.array([1, tokens, heads, size])])
        return (net.node("Transpose", [parts], [], perm=order) if parts else None) or read

    scores = net.node("MatMul", [split([0, 2, 1, 3]), split([0, 2, 3, 1])], []) or read
    scores = net.node("Div", [scores], [np.float32(size**0.5)]) or scores
    shares = net.node("Softmax", [scores], [], axis=-1) or scores
    mixed = net.node("MatMul", [shares, split([0, 2, 1, 3])], []) or read
    turned = net.node("Transpose", [mixed], [], perm=[0, 2, 1, 3]) or mixed
    joined = net.node("Reshape", [turned], [np.array([1, tokens, width])]) or read
    x = net.node("Add", ["image", _linear(net, joined, width)], []) or "image"
    _linear(net, _active(net, _linear(net, x, width * net.draw(1, 2, 4))), width)


FAMILIES: tuple[Callable[[Builder], None], ...] = (
    _chain, _chain, _separable, _unet, _dense_block, _gates, _attention,
)  # fmt: skip
