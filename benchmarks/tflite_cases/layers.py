"""Layers with weights, pools, reductions, softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.tflite_cases.case import SHAPE, Case, ints, one_result, same_scales
from tests.support.tflite_file import Quantized
from tests.support.tflite_models import NONE, RELU, RELU6, SAME, VALID, Network
from tests.support.tflite_state_models import lstm, svdf


def _layer(name: str, make: Callable[[Network], int], **named: object) -> Case:
    return Case(name=name, make=lambda net: [make(net)], **named)  # type: ignore[arg-type]


def _transposed(stride: tuple[int, int], padding: int) -> Callable[[Network], int]:
    """TRANSPOSE_CONV of 3x4 taps from 5 channels to 3."""

    def make(net: Network) -> int:
        x = net.input(SHAPE)
        given = net.weights("t", (3, 3, 4, 5), 0, x)
        reach = (3, 4) if padding == VALID else stride
        size = (1, *((e - 1) * s + r for e, s, r in zip((4, 6), stride, reach, strict=True)), 3)
        shape = net.writer.constant("size", np.array(size, np.int32))
        return net.writer.operator(
            "TRANSPOSE_CONV", [shape, given[0], x, given[1]], net.output("t", size), "TransposeConvOptions",
            Padding=padding, StrideH=stride[0], StrideW=stride[1],
        )  # fmt: skip

    return make


def _product(shapes: Sequence[Sequence[int]], result: Sequence[int], **fields: bool) -> Case:
    def make(net: Network) -> int:
        a, b = net.input(shapes[0], "a"), net.input(shapes[1], "b")
        output = net.output("y", result, net.scales(16.0))
        return net.writer.operator("BATCH_MATMUL", [a, b], output, "BatchMatMulOptions", **fields)

    return _layer(f"BATCH_MATMUL {[list(shape) for shape in shapes]} {fields}", make)


def _reduced(kind: str, axes: Sequence[int], *, keeps: bool = True, scales: str = "own") -> Case:
    def make(net: Network) -> int:
        x = net.input(SHAPE)
        kept = [1 if axis in axes else extent for axis, extent in enumerate(SHAPE) if keeps or axis not in axes]
        wanted = same_scales(net, x) if scales == "same" else net.scales(40.0 if kind == "SUM" else 4.0)
        places = net.writer.constant("axes", np.array(axes, np.int32))
        return net.writer.operator(kind, [x, places], net.output("y", kept, wanted), "ReducerOptions", KeepDims=keeps)

    return _layer(f"{kind} {list(axes)} {scales}", make)


def _reduce_all(net: Network) -> int:
    x, axes = net.writer.input("x", SHAPE, "bool"), net.writer.constant("axes", ints(1))
    return net.writer.operator("REDUCE_ALL", [x, axes], net.writer.tensor("y", (1, 6, 5), "bool"), "ReducerOptions")


def _place(kind: str, axis: int) -> Case:
    result = [extent for place, extent in enumerate(SHAPE) if place != axis % 4]
    options, axes = kind.title().replace("_", "") + "Options", [np.array(axis, np.int32)]
    make = one_result(kind, options, result=result, constants=axes, scales="none", dtype="int32", OutputType=2)
    return Case(name=f"{kind} {axis}", make=make)


def _softmax(beta: float, wanted: str) -> Callable[[Network], int]:
    """wanted: type of the result beside int8, int8 or int16."""

    def make(net: Network) -> int:
        x = net.input((3, 20))
        if net.dtype == "float32":
            y = net.output("y", (3, 20))
        elif net.int16 or wanted == "int16":
            zero_point = -32768 if net.int8 else 0
            y = net.writer.tensor("y", (3, 20), "int16", Quantized(scale=1 / (32768 if net.int16 else 65536),
                                                                    zero_point=zero_point))  # fmt: skip
        else:
            y = net.writer.tensor("y", (3, 20), "int8", Quantized(scale=1 / 256, zero_point=-128))
        return net.writer.operator("SOFTMAX", [x], y, "SoftmaxOptions", Beta=beta)

    return make


def _embedding(net: Network) -> int:
    """EMBEDDING_LOOKUP of rows of a table of int8 or float32 in the file."""
    places = net.writer.input("places", (3,), "int32")
    table = net.random.normal(0, 1, (8, 5)).astype(np.float32)
    scales = net.scales()
    if net.dtype != "float32":
        table = net.random.integers(-128, 128, (8, 5)).astype(net.dtype)
    rows = net.writer.constant("table", table, scales)
    return net.writer.operator("EMBEDDING_LOOKUP", [places, rows], net.output("y", (3, 5), scales))


def _average(kind: str, **named: int) -> Case:
    def make(net: Network) -> int:
        return net.pool(net.input((1, 7, 7, 5)), (3, 3), "p", kind=kind, stride=(2, 2), **named)

    return _layer(f"{kind} {named}", make)


def _sums(exclusive: bool, reverse: bool) -> Case:
    make = one_result("CUMSUM", "CumsumOptions", constants=[ints(2)], Exclusive=exclusive, Reverse=reverse)

    def real(x: np.ndarray, _axis: np.ndarray) -> np.ndarray:
        turned = np.flip(x, 2) if reverse else x
        summed = np.cumsum(turned, 2) - (turned if exclusive else 0)
        return np.flip(summed, 2) if reverse else summed

    return Case(name=f"CUMSUM exclusive={exclusive} reverse={reverse}", make=make, real=real)


class _Written(Case):
    """A case whose file another module writes."""

    def file(self, dtype: str, seed: int) -> tuple[bytes, list[np.ndarray]]:
        random = np.random.default_rng(seed)
        if self.name == "SVDF":
            state = {"float32": "float32", "int8": "int8" if seed % 2 else "int16"}[dtype]
            data, shape = svdf(state=state, activation=RELU if seed < 2 else NONE), (1, 6)
        else:
            data, shape = lstm(int8=dtype == "int8", steps=3), (1, 3, 5)
        real = random.standard_normal(shape).astype(np.float32)
        return data, [real if dtype == "float32" else random.integers(-128, 128, shape).astype(np.int8)]


def _nothing(net: Network) -> list[int]:
    raise NotImplementedError("the file is written by `file`")


CASES: dict[str, list[Case]] = {
    "CONV_2D": [
        _layer("CONV_2D", lambda n: n.conv(n.input((1, 9, 9, 3)), 7, (3, 3), "c", stride=(2, 1))),
        _layer("CONV_2D dilated", lambda n: n.conv(n.input((1, 9, 9, 3)), 5, (3, 3), "c", dilation=(2, 2),
                                                   activation=RELU6)),
        _layer("CONV_2D 1x1", lambda n: n.conv(n.input((1, 5, 5, 16)), 8, (1, 1), "c", activation=NONE)),
    ],
    "DEPTHWISE_CONV_2D": [
        _layer("DEPTHWISE_CONV_2D", lambda n: n.depthwise(n.input((1, 7, 9, 6)), (3, 3), "d", activation=RELU6)),
        _layer("DEPTHWISE_CONV_2D multiplier", lambda n: n.depthwise(n.input((1, 9, 9, 3)), (3, 3), "d", multiplier=2)),
    ],
    "FULLY_CONNECTED": [
        _layer("FULLY_CONNECTED", lambda n: n.dense(n.input((2, 30)), 7, "d", activation=RELU)),
        _layer("FULLY_CONNECTED by channel", lambda n: n.dense(n.input((2, 30)), 7, "d", per_channel=True)),
    ],
    "TRANSPOSE_CONV": [
        _layer("TRANSPOSE_CONV", _transposed((2, 2), SAME)), _layer("TRANSPOSE_CONV valid", _transposed((3, 1), VALID))
    ],
    "BATCH_MATMUL": [
        _product([(2, 4, 6), (2, 6, 5)], (2, 4, 5)), _product([(2, 4, 6), (2, 5, 6)], (2, 4, 5), AdjY=True),
        _product([(2, 6, 4), (2, 6, 5)], (2, 4, 5), AdjX=True), _product([(2, 3, 4, 6), (6, 5)], (2, 3, 4, 5)),
    ],
    "SVDF": [_Written(name="SVDF", make=_nothing, types=("float32", "int8"))],
    "UNIDIRECTIONAL_SEQUENCE_LSTM": [_Written(name="LSTM", make=_nothing, types=("float32", "int8"))],
    "EMBEDDING_LOOKUP": [_layer("EMBEDDING_LOOKUP", _embedding, below=8)],
    "AVERAGE_POOL_2D": [_average("AVERAGE_POOL_2D", padding=SAME), _average("AVERAGE_POOL_2D", activation=RELU6)],
    "MAX_POOL_2D": [_average("MAX_POOL_2D", padding=SAME), _average("MAX_POOL_2D", activation=RELU6)],
    "L2_POOL_2D": [_average("L2_POOL_2D", padding=SAME), _average("L2_POOL_2D", activation=RELU6)],
    "MEAN": [_reduced("MEAN", [1, 2]), _reduced("MEAN", [1, 2], scales="same"), _reduced("MEAN", [3], keeps=False)],
    "SUM": [_reduced("SUM", [1, 2]), _reduced("SUM", [3], keeps=False), _reduced("SUM", [2], scales="same")],
    "REDUCE_MAX": [_reduced("REDUCE_MAX", [1, 2], scales="same"), _reduced("REDUCE_MAX", [3], scales="same")],
    "REDUCE_MIN": [_reduced("REDUCE_MIN", [1, 2], scales="same"), _reduced("REDUCE_MIN", [3], scales="same")],
    "REDUCE_ALL": [_layer("REDUCE_ALL", _reduce_all, types=("float32",))],
    "ARG_MAX": [_place("ARG_MAX", -1), _place("ARG_MAX", 1)],
    "ARG_MIN": [_place("ARG_MIN", -1), _place("ARG_MIN", 1)],
    "CUMSUM": [_sums(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)],
    "SOFTMAX": [
        _layer("SOFTMAX", _softmax(1.0, "int8")), _layer("SOFTMAX beta", _softmax(0.4, "int8")),
        _layer("SOFTMAX to int16", _softmax(1.0, "int16"), types=("int8",)),
    ],
    "LOG_SOFTMAX": [Case(name="LOG_SOFTMAX", make=one_result("LOG_SOFTMAX", "LogSoftmaxOptions", source=(3, 20),
                                                             scales="16,127"))],
    "L2_NORMALIZATION": [Case(name="L2_NORMALIZATION", make=one_result("L2_NORMALIZATION", "L2NormOptions",
                                                                       scales="128,0"))],
}  # fmt: skip
