"""TensorFlow Lite operators that cannot be compiled: each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import tflite

from benchmarks.tflite_cases.case import SHAPE, ints, one_result
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import Network
from tests.support.tflite_runners import saved_tflite
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load

Make = Callable[[Network], Sequence[int]]


def pair(
    kind: str, options: str = "", *, shapes: Sequence[Sequence[int]] = (SHAPE, SHAPE), scales: Sequence[float] = (),
    result: Sequence[int] = SHAPE, types: Sequence[str] = ("", ""), **fields: object,
) -> Make:  # fmt: skip
    """An operator on two inputs. scales: of both and of the output, with zero point 0."""

    def make(net: Network) -> list[int]:
        given = [Quantized(scale=scale) for scale in scales] or [net.scales()] * 3
        a, b = (net.writer.input(name, shape, dtype or net.dtype, None if dtype else one)
                for name, shape, dtype, one in zip("ab", shapes, types, given, strict=False))  # fmt: skip
        return [net.writer.operator(kind, [a, b], net.output("y", result, given[2]), options, **fields)]

    return make


def alone(
    kind: str, wanted: Quantized, given: float = 0.001, options: str = "", shape: tuple = SHAPE, **fields: float
) -> Make:
    """An operator on one input of zero point 0."""

    def make(net: Network) -> list[int]:
        x = net.writer.input("x", shape, net.dtype, Quantized(scale=given))
        return [net.writer.operator(kind, [x], net.output("y", shape, wanted), options, **fields)]

    return make


def moved(kind: str, *constants: np.ndarray, options: str = "", **named: object) -> Make:
    return one_result(kind, options, constants=constants, scales="same", **named)  # type: ignore[arg-type]


def update(part: Sequence[int], count: int) -> Make:
    """DYNAMIC_UPDATE_SLICE of [4, 6]."""

    def make(net: Network) -> list[int]:
        inputs = [net.input((4, 6)), net.input(part, "part"), net.writer.input("begin", (count,), "int32")]
        return [net.writer.operator("DYNAMIC_UPDATE_SLICE", inputs, net.output("y", (4, 6)))]

    return make


def rows(*places: int) -> Make:
    """EMBEDDING_LOOKUP of constant places of four rows."""

    def make(net: Network) -> list[int]:
        table = net.writer.constant("table", np.zeros((4, 5), np.float32))
        y = net.writer.tensor("y", (len(places), 5))
        return [net.writer.operator("EMBEDDING_LOOKUP", [net.writer.constant("places", ints(*places)), table], y)]

    return make


def filled(net: Network) -> list[int]:
    shape = net.writer.constant("shape", ints(2, 3))
    return [net.writer.operator("FILL", [shape, net.input((2,))], net.output("y", (2, 3)), "FillOptions")]


FLOAT: dict[str, tuple[Make, str]] = {
    "axis": (pair("EXPAND_DIMS", types=("", "int32"), shapes=(SHAPE, ()), result=(1, 4, 6, 5, 1)), "axis depends on"),
    "squeeze": (
        moved("SQUEEZE", options="SqueezeOptions", SqueezeDims=[1]),
        r"it removes axes \[1\] of \[1, 4, 6, 5\]",
    ),
    "fill": (filled, r"it fills with a tensor of shape \[2\], not with a number"),
    "negative padding": (
        moved("SPACE_TO_BATCH_ND", ints(2, 2), np.array([[-1, 1], [0, 0]], np.int32)),
        "paddings are at least 0",
    ),
    "blocks": (moved("SPACE_TO_BATCH_ND", ints(3, 2), np.zeros((2, 2), np.int32)), "does not divide into blocks of"),
    "too many blocks": (moved("SPACE_TO_BATCH_ND", ints(2, 2), np.zeros((1, 2), np.int32)), "do not fit an input of"),
    "batch": (moved("BATCH_TO_SPACE_ND", ints(2, 2), np.zeros((2, 2), np.int32)), "its batch of 1 does not divide"),
    "crops": (
        moved("BATCH_TO_SPACE_ND", ints(1, 1), np.array([[4, 0], [0, 0]], np.int32)),
        "at least 0 and must leave elements",
    ),
    "mirror": (
        moved("MIRROR_PAD", np.array([[0, 0], [4, 0], [0, 0], [0, 0]], np.int32), options="MirrorPadOptions"),
        "it mirrors 4 of 4 elements along axis 1",
    ),
    "row": (rows(1, 4), r"an index lies outside \[0, 4\)"),
    "part": (update((5, 2), 2), r"its part \[5, 2\] does not fit into \[4, 6\]"),
    "place": (update((2, 2), 3), r"its begin has \[3\] numbers; 2 are needed"),
}
INT8: dict[str, tuple[Make, str]] = {
    "comparison": (pair("LESS", "LessOptions", scales=(2.0, 0.1, 1.0)), "compares integers with scales below 1"),
    "sums": (pair("SQUARED_DIFFERENCE", scales=(1.0, 1.0, 1e-6)), "more than int32 holds"),
    "products": (
        pair("BATCH_MATMUL", "BatchMatMulOptions", shapes=((4, 6), (6, 5)), result=(4, 5), scales=(1, 1, 1e-6)),
        "more than int32 holds",
    ),
    "depth": (
        pair("BATCH_MATMUL", "BatchMatMulOptions", shapes=((4, 6), (7, 5)), result=(4, 5)), "cannot be multiplied"
    ),
    "batches": (
        pair("BATCH_MATMUL", "BatchMatMulOptions", shapes=((2, 4, 6), (3, 6, 5)), result=(3, 4, 5)),
        "cannot be repeated to one shape",
    ),
    "size": (
        pair("RESIZE_BILINEAR", "ResizeBilinearOptions", shapes=(SHAPE, (2,)), types=("", "int32")), "size depends on"
    ),
    "no size": (
        moved("RESIZE_BILINEAR", ints(0, 3), options="ResizeBilinearOptions"), r"its size \[0, 3\] is no number of rows"
    ),
    "probabilities": (
        lambda net: [net.writer.operator("SOFTMAX", [net.input(SHAPE)], net.writer.tensor(
            "y", SHAPE, "int16", Quantized(scale=0.1)), "SoftmaxOptions", Beta=1.0)], "of int16 1/65536 and -32768"
    ),
    "long row": (
        lambda net: [net.writer.operator("SOFTMAX", [net.input((1, 4096))], net.output("y", (1, 4096), Quantized(
            scale=1 / 256, zero_point=-128)), "SoftmaxOptions", Beta=0.5)], "its last axis has 4096 elements"
    ),
    "activation": (
        lambda net: [net.writer.operator("ADD", [net.input((2,)), net.writer.constant("c", np.ones(2, np.int8),
            Quantized(scale=0.1))], net.output("y", (2,)), "AddOptions", FusedActivationFunction=
            tflite.ActivationFunctionType.TANH)], "its fused activation"
    ),
}  # fmt: skip
INT16: dict[str, tuple[Make, str]] = {
    "logistic": (alone("LOGISTIC", Quantized(scale=0.1)), r"its int16 output has scale 2\^-15 by definition"),
    "tanh of much": (alone("TANH", Quantized(scale=2.0**-15), 3.0), "its input's scale of 3 is too large"),
    "softmax": (
        alone("SOFTMAX", Quantized(scale=0.1), options="SoftmaxOptions", Beta=1.0),
        r"has scale 2\^-15 by definition",
    ),
    "long softmax": (
        alone("SOFTMAX", Quantized(scale=2.0**-15), options="SoftmaxOptions", shape=(1, 32768), Beta=1.0),
        "axis has 32768 elements",
    ),
    "factor": (
        pair("BATCH_MATMUL", "BatchMatMulOptions", shapes=((4, 6), (6, 5)), result=(4, 5), scales=(100, 100, 0.01)),
        "its scales are a factor of 1e[+]06 apart",
    ),
}
ALL = {**{(name, "float32"): one for name, one in FLOAT.items()}, **{(name, "int8"): one for name, one in INT8.items()},
       **{(name, "int16"): one for name, one in INT16.items()}}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), ALL)
def test_refused(name: str, dtype: str, tmp_path: Path) -> None:
    make, reason = ALL[name, dtype]
    net = Network(int8=dtype == "int8", int16=dtype == "int16")
    with pytest.raises(UnsupportedModel, match=reason):
        load(saved_tflite(net.writer.finish(list(make(net))), tmp_path))


def test_several_scales(tmp_path: Path) -> None:
    """PRELU's slopes have one scale."""
    net = Network(int8=True)
    slopes = net.writer.constant("slopes", np.ones(5, np.int8), Quantized(scale=[0.1] * 5))
    net.writer.operator("PRELU", [net.input(SHAPE), slopes], y := net.output("y", SHAPE))
    with pytest.raises(UnsupportedModel, match="its tensor 'slopes' needs one scale"):
        load(saved_tflite(net.writer.finish([y]), tmp_path))


def test_file_of_vela(tmp_path: Path) -> None:
    """A scratch tensor that no operator makes is no reason to call it damaged."""
    writer = TfliteWriter()
    commands, scratch = writer.constant("commands", np.zeros(8, np.uint8)), writer.tensor("scratch", (8,), "uint8")
    x = writer.input("x", (1, 4), "int8", Quantized(scale=0.1))
    y = writer.tensor("y", (1, 4), "int8", Quantized(scale=0.1))
    writer.operator("ethos-u", [commands, scratch, x], y)
    with pytest.raises(UnsupportedModel, match="Vela compiled this file for that processor"):
        load(saved_tflite(writer.finish([y]), tmp_path))
