"""TensorFlow Lite layers over windows, channels and axes, in floats and integers, beside TensorFlow Lite Micro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from benchmarks.pairing.operator_case import Array, Choice, Input, Model, Operator, seed_of
from tests.support.tflite_models import NONE, RELU, RELU6, SAME, VALID, Network

_ARENA_BYTES = 1 << 20
_IMAGES = [(1, 9, 8, 4), (1, 7, 12, 3), (2, 6, 6, 5), (1, 1, 10, 8), (1, 5, 5, 1)]
_ACTIVATIONS = {"none": NONE, "relu": RELU, "relu6": RELU6}
_PADDINGS = {"same": SAME, "valid": VALID}
_NUMBERS = count()


def _model(choice: Choice, make: Callable[[Network], int]) -> Model:
    """Return the file of one layer; TensorFlow Lite Micro runs it alone, so that no two are joined."""
    net = Network(int8=choice["dtype"] == "int8", int16=choice["dtype"] == "int16", seed=seed_of(str(choice)))
    output = make(net)
    data = net.writer.finish([output])
    tensors = [net.writer.tensors[index] for index in net.writer.inputs]
    inputs = {t.name: Input(shape=t.shape, dtype=t.dtype, low=-(1 << 15), high=1 << 15) for t in tensors}

    def run(arrays: Mapping[str, Array]) -> list[Array]:
        from tflite_micro.python.tflite_micro import runtime

        interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA_BYTES)
        for index, array in enumerate(arrays.values()):
            interpreter.set_input(np.array(array), index)
        interpreter.invoke()
        return [np.array(interpreter.get_output(0))]

    return Model(source=data, inputs=inputs, run=run, join=_alone, kind=f"tflite {next(_NUMBERS)}")


def _alone(models: Sequence[Model]) -> Model:
    raise NotImplementedError("files of TensorFlow Lite are not joined")


def _fits(choice: Choice) -> bool:
    height, width = choice["shape"][1:3]
    rows, columns = choice["kernel"]
    dilation = choice.get("dilation", (1, 1))
    reach = (rows - 1) * dilation[0] + 1, (columns - 1) * dilation[1] + 1
    if max(dilation) > 1 and max(choice["stride"]) > 1:
        return False
    return choice["padding"] == "same" or (reach[0] <= height and reach[1] <= width)


def _layer(name: str, make: Callable[[Network, Choice], int], **factors: Sequence[Any]) -> Operator:
    """A layer over windows; factors: those that not all of them have."""
    every: dict[str, Sequence[Any]] = {
        "shape": _IMAGES,
        "kernel": [(3, 3), (1, 1), (2, 3), (4, 2)],
        "stride": [(1, 1), (2, 2), (1, 2), (3, 1)],
        "padding": list(_PADDINGS),
        "activation": list(_ACTIVATIONS),
        "dtype": ["float32", "int8", "int16"],
        **factors,
    }
    return Operator(
        form="tflite",
        name=name,
        factors=every,
        make=lambda choice: _model(choice, lambda net: make(net, choice)),
        is_valid=_fits,
        quantized=False,
    )


def _named(choice: Choice) -> dict[str, Any]:
    return {
        "stride": choice["stride"],
        "padding": _PADDINGS[choice["padding"]],
        "activation": _ACTIVATIONS[choice["activation"]],
    }


def _conv(net: Network, choice: Choice) -> int:
    x = net.input(choice["shape"])
    return net.conv(x, choice["channels"], choice["kernel"], "c", dilation=choice["dilation"], **_named(choice))


def _depthwise(net: Network, choice: Choice) -> int:
    x = net.input(choice["shape"])
    return net.depthwise(x, choice["kernel"], "d", multiplier=choice["multiplier"], **_named(choice))


def _pool(kind: str) -> Callable[[Network, Choice], int]:
    def make(net: Network, choice: Choice) -> int:
        return net.pool(net.input(choice["shape"]), choice["kernel"], "p", kind=kind, **_named(choice))

    return make


def _dense() -> Operator:
    def make(choice: Choice) -> Model:
        def of(net: Network) -> int:
            x = net.input(choice["shape"])
            activation = _ACTIVATIONS[choice["activation"]]
            return net.dense(x, choice["channels"], "d", activation=activation, per_channel=choice["per_channel"])

        return _model(choice, of)

    factors = {
        "shape": [(1, 30), (3, 8), (1, 1), (2, 17)],
        "channels": [1, 4, 10],
        "activation": list(_ACTIVATIONS),
        "per_channel": [False, True],
        "dtype": ["float32", "int8", "int16"],
    }
    return Operator(form="tflite", name="FULLY_CONNECTED", factors=factors, make=make, quantized=False)


def _resize(kind: str) -> Operator:
    def make(choice: Choice) -> Model:
        def of(net: Network) -> int:
            x = net.input(choice["shape"])
            size = net.writer.constant("size", np.array(choice["size"], np.int32))
            shape = (choice["shape"][0], *choice["size"], choice["shape"][3])
            output = net.output("y", shape, net.writer.tensors[x].quantized)
            title = "".join(part.capitalize() for part in kind.split("_"))
            fields = {"AlignCorners": choice["align_corners"], "HalfPixelCenters": choice["half_pixel_centers"]}
            return net.writer.operator(kind, [x, size], output, f"{title}Options", **fields)

        return _model(choice, of)

    factors = {
        "shape": _IMAGES,
        "size": [(8, 12), (3, 7), (1, 1), (9, 8), (13, 5)],
        "align_corners": [False, True],
        "half_pixel_centers": [False, True],
        "dtype": ["float32", "int8"],
    }
    return Operator(
        form="tflite",
        name=kind,
        factors=factors,
        make=make,
        is_valid=lambda choice: not (choice["align_corners"] and choice["half_pixel_centers"]),
        quantized=False,
    )


OPERATORS = [
    _layer("CONV_2D", _conv, channels=[1, 4, 7], dilation=[(1, 1), (2, 2), (1, 3)]),
    _layer("DEPTHWISE_CONV_2D", _depthwise, multiplier=[1, 2, 3]),
    _layer("AVERAGE_POOL_2D", _pool("AVERAGE_POOL_2D")),
    _layer("MAX_POOL_2D", _pool("MAX_POOL_2D")),
    _dense(),
    _resize("RESIZE_BILINEAR"),
    _resize("RESIZE_NEAREST_NEIGHBOR"),
]
