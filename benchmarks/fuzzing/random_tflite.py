"""Random valid TensorFlow Lite models, float, int8, uint8 or int16, in the layers of tests/support/tflite_models.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import NONE, PROBABILITIES, RELU, RELU6, SAME, VALID, Network
from tests.support.tflite_unsigned import to_unsigned_bytes

_UNIT = Quantized(scale=1 / 32768)
"""Scale that the format fixes for results of int16 between -1 and 1."""


@dataclass(frozen=True, kw_only=True)
class TfliteModel:
    """A file before it is written: what structural mutations and shrinking work on."""

    writer: TfliteWriter
    outputs: tuple[int, ...]

    def data(self) -> bytes:
        return self.writer.finish(list(self.outputs))


@dataclass(kw_only=True)
class WideNetwork(Network):
    """A network with scales far apart and zero points that are often at the ends of their type."""

    def scales(self, largest: float = 4.0) -> Quantized | None:
        given = super().scales(largest)
        if given is None or self.random.random() < 0.4:
            return given
        ends = (-128, 127, -127, 0) if self.int8 else (0,)
        factor = 2.0 ** float(self.random.choice((0, self.random.uniform(-4, 4))))
        return Quantized(scale=float(np.atleast_1d(given.scale)[0]) * factor, zero_point=int(self.random.choice(ends)))


def random_tflite(seed: int, num_layers: int = 6) -> TfliteModel:
    """A random model, the same for the same seed; every value that nobody reads is an output."""
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(("float32", "int8", "int8 wide", "uint8", "int16"), p=(0.25, 0.3, 0.3, 0.08, 0.07)))
    net = (WideNetwork if kind in ("int8 wide", "int16") else Network)(
        int8=kind in ("int8", "int8 wide", "uint8"), int16=kind == "int16", seed=seed
    )
    shape = (1, int(rng.choice((5, 8, 9, 12))), int(rng.choice((4, 7, 8, 11))), int(rng.choice((1, 2, 3, 8, 16))))
    values = [net.input(shape if rng.random() < 0.85 else (1, int(rng.choice((7, 16, 40)))))]
    if rng.random() < 0.15:
        values.append(net.input(net.shape(values[0]), "second"))
    for index in range(num_layers):
        x = values[-1 - min(int(rng.geometric(0.6)) - 1, len(values) - 1)]
        make = LAYERS[int(rng.integers(len(LAYERS)))]
        made = make(net, x, f"{make.__name__.strip('_')}_{index}", rng, values)
        if made is not None:
            values.append(made)
    if not net.writer.operators:
        values.append(_unary(net, values[0], "only", rng, values))
    read = {index for _, inputs, *_ in net.writer.operators for index in inputs}
    made = [out for _, _, outputs, *_ in net.writer.operators for out in outputs]
    ends = [index for index in made if index not in read]
    ends += [index for index in made if index in read and rng.random() < 0.05]
    if kind == "uint8":
        to_unsigned_bytes(net.writer, rng)
    return TfliteModel(writer=net.writer, outputs=tuple(ends))


Rng = np.random.Generator


def _activation(rng: Rng) -> int:
    return int(rng.choice((NONE, RELU, RELU6)))


def _conv(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    kernel, stride, padding = _window(net, x, rng)
    if kernel is None:
        return None
    dilation = (1, 1) if stride != (1, 1) or padding == VALID else (int(rng.choice((1, 1, 2))),) * 2
    channels, depth = int(rng.choice((1, 4, 7, 8, 8, 20, 33))), net.shape(x)[3]
    groups = int(rng.choice((1, 1, 2, 4)))
    groups = groups if channels % groups == 0 and depth % groups == 0 and net.dtype != "float32" else 1
    return net.conv(
        x, channels, kernel, name, stride=stride, padding=padding, activation=_activation(rng),
        dilation=dilation, groups=groups,
    )  # fmt: skip


def _depthwise(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    kernel, stride, padding = _window(net, x, rng)
    if kernel is None or net.shape(x)[3] > 40:
        return None
    square = (stride[0], stride[0])
    return net.depthwise(
        x, kernel, name, multiplier=int(rng.choice((1, 1, 2))), stride=square, padding=padding,
        activation=_activation(rng),
    )  # fmt: skip


def _pool(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    kernel, stride, padding = _window(net, x, rng)
    if kernel is None:
        return None
    kind = ("AVERAGE_POOL_2D", "MAX_POOL_2D")[int(rng.integers(2))]
    return net.pool(x, kernel, name, kind=kind, stride=stride, padding=padding, activation=_activation(rng))


def _window(net: Network, x: int, rng: Rng) -> tuple[tuple[int, int] | None, tuple[int, int], int]:
    """Kernel (None where the value is no image), stride and padding that fit."""
    shape, padding = net.shape(x), int(rng.choice((SAME, VALID)))
    if len(shape) != 4:
        return None, (1, 1), padding
    kernel = tuple(int(rng.choice((1, 2, 3, 3, 5))) for _ in range(2))
    if padding == VALID:
        kernel = tuple(min(k, e) for k, e in zip(kernel, shape[1:3], strict=True))
    return kernel, tuple(int(rng.choice((1, 1, 2))) for _ in range(2)), padding  # type: ignore[return-value]


def _binary(net: Network, x: int, name: str, rng: Rng, values: list[int]) -> int | None:
    same = [value for value in values if net.shape(value) == net.shape(x)]
    kind = ("ADD", "MUL", "SUB")[int(rng.integers(3))]
    return net.binary(kind, x, same[int(rng.integers(len(same)))], name, _activation(rng))


def _dense(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    per_channel = bool(rng.random() < 0.3)
    return net.dense(x, int(rng.choice((1, 5, 10, 33))), name, activation=_activation(rng), per_channel=per_channel)


def _flat(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    return net.reshape(x, (1, int(np.prod(net.shape(x)))), name)


def _pad(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    shape = net.shape(x)
    width = [(0, 0) if axis in (0, len(shape) - 1) else tuple(rng.integers(0, 3, 2)) for axis in range(len(shape))]
    return net.pad(x, [(int(a), int(b)) for a, b in width], name)


def _softmax(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    return None if net.int16 else net.softmax(x, name)


def _unary(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int:
    """Functions of one element, whose int8 form has a scale of its own."""
    kind = ("RELU", "RELU6", "LOGISTIC", "TANH", "HARD_SWISH")[int(rng.integers(5))]
    if kind in ("RELU", "RELU6"):
        output = net.output(name, net.shape(x), net.writer.tensors[x].quantized)
    elif kind == "LOGISTIC":
        output = net.output(name, net.shape(x), PROBABILITIES if net.int8 else _UNIT if net.int16 else None)
    elif kind == "TANH":
        output = net.output(name, net.shape(x), Quantized(scale=1 / 128) if net.int8 else _UNIT if net.int16 else None)
    else:
        output = net.output(name, net.shape(x))
    return net.writer.operator(kind, [x], output)


def _concat(net: Network, x: int, name: str, rng: Rng, values: list[int]) -> int | None:
    shape = net.shape(x)
    fits = [v for v in values if net.shape(v)[:-1] == shape[:-1]
            and net.writer.tensors[v].quantized == net.writer.tensors[x].quantized]  # fmt: skip
    other = fits[int(rng.integers(len(fits)))]
    output = net.output(name, (*shape[:-1], shape[-1] + net.shape(other)[-1]), net.writer.tensors[x].quantized)
    return net.writer.operator("CONCATENATION", [x, other], output, "ConcatenationOptions", Axis=len(shape) - 1)


def _mean(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    shape = net.shape(x)
    if len(shape) != 4:
        return None
    axes = net.writer.constant(f"{name}/axes", np.array([1, 2], np.int32))
    output = net.output(name, (shape[0], shape[3]))
    return net.writer.operator("MEAN", [x, axes], output, "ReducerOptions", KeepDims=False)


def _resize(net: Network, x: int, name: str, rng: Rng, _: list[int]) -> int | None:
    """Nearest neighbours; bilinear ones round by 1 otherwise than TensorFlow Lite Micro, and are not drawn."""
    shape = net.shape(x)
    if len(shape) != 4 or shape[1] * shape[2] > 150 or rng.random() >= 0.6:
        return None
    sizes = (shape[1] * 2, shape[2] * 2)
    given = net.writer.constant(f"{name}/size", np.array(sizes, np.int32))
    output = net.output(name, (shape[0], *sizes, shape[3]), net.writer.tensors[x].quantized)
    return net.writer.operator(
        "RESIZE_NEAREST_NEIGHBOR", [x, given], output, "ResizeNearestNeighborOptions",
        HalfPixelCenters=bool(rng.random() < 0.5),
    )  # fmt: skip


LAYERS: tuple[Callable[..., int | None], ...] = (
    _conv,
    _conv,
    _depthwise,
    _depthwise,
    _pool,
    _binary,
    _binary,
    _dense,
    _flat,
    _pad,
    _softmax,
    _unary,
    _concat,
    _mean,
    _resize,
)
