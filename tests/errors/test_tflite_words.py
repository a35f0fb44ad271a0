"""TensorFlow Lite files with int16 activations, transposed convolutions or integers of 32 bits that are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite_file import Quantized
from tests.support.tflite_models import SAME, VALID, Network
from tests.support.tflite_runners import saved_tflite
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load

WORD = Quantized(scale=1e-4)


def rescaled(source: str, given: Quantized | None, wanted: str, scale: float) -> bytes:
    """A QUANTIZE between integers."""
    net = Network()
    x = net.writer.input("x", (1, 4), source, given)
    y = net.writer.tensor("y", (1, 4), wanted, Quantized(scale=scale))
    return net.writer.finish([net.writer.operator("QUANTIZE", [x], y, "QuantizeOptions")])


def layer(change: Callable[[Network], None]) -> bytes:
    """A convolution of int16, its tensors changed."""
    net = Network(int16=True)
    y = net.conv(net.input((1, 4, 4, 2)), 3, (3, 3), "c")
    change(net)
    return net.writer.finish([y])


def tensor(net: Network, name: str) -> int:
    return next(index for index, found in enumerate(net.writer.tensors) if found.name == name)


def zero_point(net: Network) -> None:
    net.writer.tensors[tensor(net, "image")].quantized = Quantized(scale=1e-4, zero_point=5)


def bias(number: int, dtype: str) -> Callable[[Network], None]:
    def change(net: Network) -> None:
        found = net.writer.tensors[tensor(net, "c/bias")]
        found.dtype = dtype
        net.writer.buffers[found.buffer] = np.full(3, number, dtype).tobytes()

    return change


def transposed(size: tuple[int, ...], depth: int = 4, *, padding: int = SAME) -> bytes:
    """TRANSPOSE_CONV of 2x2 taps by steps of 2, from [1, 3, 3, 4] to a shape."""
    net = Network(int8=True)
    x = net.input((1, 3, 3, 4))
    given = net.weights("t", (2, 2, 2, depth), 0, x)
    shape = net.writer.constant("size", np.array(size, np.int32))
    y = net.writer.operator(
        "TRANSPOSE_CONV", [shape, given[0], x], net.output("t", size), "TransposeConvOptions", Padding=padding,
        StrideH=2, StrideW=2,
    )  # fmt: skip
    return net.writer.finish([y])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (layer(zero_point), "has a zero point that is not 0, or several scales"),
        (layer(bias(1 << 62, "int64")), "its bias has more than 62 bits"),
        (layer(bias(2**31 - 1, "int32")), r"its sums reach 2\.\d+e\+09, more than int32 holds"),
        (rescaled("uint8", Quantized(scale=0.1), "int32", 1e-6), "quantizing uint8 to int32 is not supported"),
        (rescaled("int32", None, "int16", 1e-4), "quantizing int32 to int16 is not supported"),
        (rescaled("int32", Quantized(scale=1.0), "int16", 1e-4), "from int32 it stays below 1"),
        (rescaled("int16", WORD, "int32", 1e-10), "from int16 it stays below 16384"),
        (transposed((1, 6, 6, 2), depth=3), "its weights fit neither its input's channels nor its output's"),
        (transposed((1, 6, 6, 3)), "its weights fit neither its input's channels nor its output's"),
        (transposed((1, 9, 9, 2), padding=VALID), r"its input does not reach all of its output \[9, 9\]"),
        (transposed((6, 6, 2)), "the shape of its output"),
    ],
)
def test_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        load(saved_tflite(data, tmp_path))
