"""TensorFlow Lite layers over windows, channels and axes, in floats and integers, beside TensorFlow Lite Micro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.pairing.operator_case import Choice, Operator
from benchmarks.pairing.tflite_form import ACTIVATIONS, TYPES, tflite_operator
from tests.support.tflite_models import SAME, VALID, Network

_IMAGES = [(1, 9, 8, 4), (1, 7, 12, 3), (2, 6, 6, 5), (1, 1, 10, 8), (1, 5, 5, 1)]
_PADDINGS = {"same": SAME, "valid": VALID}


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
        "activation": list(ACTIVATIONS),
        "dtype": TYPES,
        **factors,
    }
    return tflite_operator(name, make, is_valid=_fits, **every)


def _named(choice: Choice) -> dict[str, Any]:
    return {
        "stride": choice["stride"],
        "padding": _PADDINGS[choice["padding"]],
        "activation": ACTIVATIONS[choice["activation"]],
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


def _dense(net: Network, choice: Choice) -> int:
    x, activation = net.input(choice["shape"]), ACTIVATIONS[choice["activation"]]
    return net.dense(x, choice["channels"], "d", activation=activation, per_channel=choice["per_channel"])


def _resize(kind: str) -> Operator:
    def make(net: Network, choice: Choice) -> int:
        x = net.input(choice["shape"])
        size = net.writer.constant("size", np.array(choice["size"], np.int32))
        shape = (choice["shape"][0], *choice["size"], choice["shape"][3])
        output = net.output("y", shape, net.writer.tensors[x].quantized)
        title = "".join(part.capitalize() for part in kind.split("_"))
        fields = {"AlignCorners": choice["align_corners"], "HalfPixelCenters": choice["half_pixel_centers"]}
        return net.writer.operator(kind, [x, size], output, f"{title}Options", **fields)

    return tflite_operator(
        kind, make, is_valid=lambda choice: not (choice["align_corners"] and choice["half_pixel_centers"]),
        shape=_IMAGES, size=[(8, 12), (3, 7), (1, 1), (9, 8), (13, 5)], align_corners=[False, True],
        half_pixel_centers=[False, True], dtype=["float32", "int8"],
    )  # fmt: skip


OPERATORS = [
    _layer("CONV_2D", _conv, channels=[1, 4, 7], dilation=[(1, 1), (2, 2), (1, 3)]),
    _layer("DEPTHWISE_CONV_2D", _depthwise, multiplier=[1, 2, 3]),
    _layer("AVERAGE_POOL_2D", _pool("AVERAGE_POOL_2D")),
    _layer("MAX_POOL_2D", _pool("MAX_POOL_2D")),
    tflite_operator(
        "FULLY_CONNECTED", _dense, shape=[(1, 30), (3, 8), (1, 1), (2, 17)], channels=[1, 4, 10],
        activation=list(ACTIVATIONS), per_channel=[False, True], dtype=TYPES,
    ),
    _resize("RESIZE_BILINEAR"),
    _resize("RESIZE_NEAREST_NEIGHBOR"),
]  # fmt: skip
