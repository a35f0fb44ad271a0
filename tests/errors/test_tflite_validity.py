"""TensorFlow Lite files that parse and that the format's own runtimes refuse, or compute otherwise than they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tflite

from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import NONE, RELU, SAME, VALID, Network
from tests.support.tflite_runners import saved_tflite
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.load import load

A, B = Quantized(scale=0.05, zero_point=3), Quantized(scale=0.07, zero_point=3)
TANH = tflite.ActivationFunctionType.TANH


def one(
    kind: str,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    *constants: np.ndarray,
    dtype: str = "float32",
    given: Quantized | None = None,
    wanted: Quantized | None = None,
    options: str = "",
    inputs: int = 1,
    outputs: int = 1,
    result_dtype: str = "",
    **fields: object,
) -> bytes:
    """A file of one operator."""
    writer = TfliteWriter()
    sources = [writer.input(f"x{index}", shape, dtype, given) for index in range(inputs)]
    rest = [writer.constant(f"c{index}", array) for index, array in enumerate(constants)]
    made = [writer.tensor(f"y{index}", result, result_dtype or dtype, wanted) for index in range(outputs)]
    writer.operator(kind, [*sources, *rest], made, options, **fields)
    return writer.finish(made)


def pool(given: Quantized | None = None, wanted: Quantized | None = None, **fields: int) -> bytes:
    values = {"Padding": VALID, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2} | fields
    dtype = "int8" if given else "float32"
    return one(
        "MAX_POOL_2D", (1, 4, 4, 2), (1, 2, 2, 2), dtype=dtype, given=given, wanted=wanted, options="Pool2DOptions",
        **values,
    )  # fmt: skip


def layer(change: Callable[[TfliteWriter], None]) -> bytes:
    """An int8 convolution, its tensors changed."""
    net = Network(int8=True)
    y = net.conv(net.input((1, 4, 4, 2)), 3, (3, 3), "c", padding=SAME, activation=NONE)
    change(net.writer)
    return net.writer.finish([y])


def scaled(index: int, quantized: Quantized) -> Callable[[TfliteWriter], None]:
    def change(writer: TfliteWriter) -> None:
        writer.tensors[index].quantized = quantized

    return change


def i32(*numbers: object) -> np.ndarray:
    return np.array(numbers, np.int32)


def with_large_bias(writer: TfliteWriter) -> None:
    """TensorFlow Lite's sums wrap around from there."""
    writer.buffers[writer.tensors[2].buffer] = i32(5, 2**31 - 1, 7).tobytes()


MOVED = {"dtype": "int8", "given": A, "wanted": B}
FILES: dict[str, tuple[Callable[[], bytes], type[Exception], str]] = {
    "pool with other scales": (lambda: pool(A, B), UnsupportedModel, "takes integers over as they are"),
    "pad with other scales": (
        lambda: one("PAD", (2, 2), (4, 2), i32([1, 1], [0, 0]), options="PadOptions", **MOVED),
        UnsupportedModel, "takes integers over as they are",
    ),
    "joined along another axis": (
        lambda: one("CONCATENATION", (1, 40), (1, 80), inputs=2, options="ConcatenationOptions", Axis=0),
        UnsupportedModel, r"its output is \[1, 80\] in the file, \[2, 40\] by its inputs",
    ),
    "reshape with other scales": (
        lambda: one("RESHAPE", (2, 2), (4,), i32(4), options="ReshapeOptions", **MOVED),
        UnsupportedModel, "takes integers over as they are",
    ),
    "softmax of another scale": (
        lambda: one("SOFTMAX", (2, 4), (2, 4), options="SoftmaxOptions", Beta=1.0, **MOVED),
        UnsupportedModel, "scale 0.00390625 and zero point -128 by definition",
    ),
    "weights with a zero point": (
        lambda: layer(scaled(1, Quantized(scale=[0.1] * 3, zero_point=4))), UnsupportedModel, "zero point that is not 0"
    ),
    "weights scaled by input channel": (
        lambda: layer(scaled(1, Quantized(scale=[0.1] * 2, axis=3))), UnsupportedModel, "not along their output"
    ),
    "sums beyond 32 bits": (
        lambda: layer(with_large_bias), UnsupportedModel, "more than int32 holds",
    ),
    "bias of another scale": (
        lambda: layer(scaled(2, Quantized(scale=[0.5, 0.5, 0.5]))), UnsupportedModel, "scale of its bias"
    ),
    "axis of scales": (lambda: layer(scaled(1, Quantized(scale=[1, 1, 1], axis=7))), BadModel, "no such axis"),
    "scales of another axis": (
        lambda: layer(scaled(1, Quantized(scale=[1, 1, 1], axis=1))), UnsupportedModel, "axis 1"
    ),
    "scale of 0": (lambda: layer(scaled(0, Quantized(scale=0.0))), BadModel, "a scale of 0.0"),
    "zero point": (lambda: layer(scaled(0, Quantized(scale=1.0, zero_point=200))), BadModel, "200; .* within int8"),
    "pool window of 0": (lambda: pool(FilterHeight=0), UnsupportedModel, "its window is"),
    "pool window below 0": (lambda: pool(FilterWidth=-3), UnsupportedModel, "its window is"),
    "pool window past its input": (lambda: pool(FilterHeight=9), UnsupportedModel, "larger than its input"),
    "pool strides": (lambda: pool(StrideH=0), UnsupportedModel, "strides"),
    "padding of no name": (lambda: pool(Padding=7), UnsupportedModel, "its padding is 7"),
    "another operator's options": (
        lambda: one("CONCATENATION", (2, 2), (4, 2), inputs=2, options="SoftmaxOptions", Beta=1.0),
        UnsupportedModel, "those of another operator",
    ),
    "join axis": (
        lambda: one("CONCATENATION", (2, 2), (4, 2), inputs=2, options="ConcatenationOptions", Axis=5),
        UnsupportedModel, "axis 5 lies outside",
    ),
    "mean axis": (
        lambda: one("MEAN", (2, 2), (2,), i32(4), options="ReducerOptions"), UnsupportedModel, r"axes \[4\] lie outside"
    ),
    "order": (
        lambda: one("TRANSPOSE", (2, 2), (2, 2), i32(0, 0), options="TransposeOptions"), UnsupportedModel, "no order"
    ),
    "padding below 0": (
        lambda: one("PAD", (2, 2), (1, 2), i32([-1, 0], [0, 0]), options="PadOptions"), UnsupportedModel, "pads by -1"
    ),
    "paddings of another rank": (
        lambda: one("PAD", (2, 2), (2, 2), i32([0, 0]), options="PadOptions"), UnsupportedModel, "its paddings have"
    ),
    "gather index": (
        lambda: one("GATHER", (2, 2), (1, 2), i32(5), options="GatherOptions"), UnsupportedModel, "index lies outside"
    ),
    "gather_nd index": (
        lambda: one("GATHER_ND", (2, 2), (1, 2), i32([5]), options="GatherNdOptions"), UnsupportedModel, "lies outside"
    ),
    "block of 0": (
        lambda: one("DEPTH_TO_SPACE", (1, 2, 2, 4), (1, 2, 2, 4), options="DepthToSpaceOptions", BlockSize=0),
        UnsupportedModel, "block size is 0",
    ),
    "too many inputs": (lambda: one("RELU", (2, 2), (2, 2), inputs=2), UnsupportedModel, "it has 2 inputs"),
    "too few inputs": (lambda: one("ADD", (2, 2), (2, 2), options="AddOptions"), UnsupportedModel, "it has 1 inputs"),
    "too many outputs": (lambda: one("RELU", (2, 2), (2, 2), outputs=2), UnsupportedModel, "it has 2 outputs"),
    "a shape of floats": (
        lambda: one("SHAPE", (2, 2), (2,), options="ShapeOptions", OutType=2, result_dtype="float32"),
        UnsupportedModel, "is float32, not int32 or int64",
    ),
    "two types": (
        lambda: one("RELU", (2, 2), (2, 2), result_dtype="int32"), UnsupportedModel, "both have one type"
    ),
    "bytes without a scale": (
        lambda: one("ADD", (2, 2), (2, 2), inputs=2, dtype="int8", options="AddOptions"),
        UnsupportedModel, "without a scale",
    ),
    "rank of a pool": (
        lambda: one("MAX_POOL_2D", (4, 4), (2, 2), options="Pool2DOptions", StrideH=2, StrideW=2, FilterHeight=2,
                    FilterWidth=2),
        UnsupportedModel, "rank 4 is needed",
    ),
    "activation the runtimes ignore": (
        lambda: one("ADD", (2, 2), (2, 2), inputs=2, options="AddOptions", FusedActivationFunction=TANH),
        UnsupportedModel, "fused activation is ignored",
    ),
    "quantized square": (lambda: one("SQUARE", (2, 2), (2, 2), **MOVED), UnsupportedModel, "on quantized tensors"),
    "local response normalization": (
        lambda: one("LOCAL_RESPONSE_NORMALIZATION", (1, 2, 2, 4), (1, 2, 2, 4)), UnsupportedModel, "divides by the size"
    ),
    "joined and activated": (
        lambda: one("CONCATENATION", (2, 2), (4, 2), inputs=2, options="ConcatenationOptions",
                    FusedActivationFunction=RELU),
        UnsupportedModel, "which no runtime computes",
    ),
    "quantized to int64": (
        lambda: one("QUANTIZE", (2, 2), (2, 2), dtype="int8", given=A, wanted=B, result_dtype="int64",
                    options="QuantizeOptions"),
        UnsupportedModel, "it quantizes to int64",
    ),
    "softmax beta of 0": (
        lambda: one("SOFTMAX", (2, 4), (2, 4), options="SoftmaxOptions", Beta=0.0), UnsupportedModel, "beta is 0.0"
    ),
    "gather batches": (
        lambda: one("GATHER", (2, 2), (1, 2), i32(1), options="GatherOptions", BatchDims=1),
        UnsupportedModel, "1 batch axes",
    ),
    "output scale too small for its bias": (
        lambda: layer(scaled(3, Quantized(scale=1e-30))), UnsupportedModel, "too small for its bias"
    ),
    "softmax beta": (
        lambda: one("SOFTMAX", (2, 4), (2, 4), options="SoftmaxOptions", Beta=float("nan")), UnsupportedModel, "beta is"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_refused(name: str, tmp_path: Path) -> None:
    make, kind, words = FILES[name]
    with pytest.raises(kind, match=words):
        load(saved_tflite(make(), tmp_path))


def test_tensors_are_made_once(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x, y = writer.input("x", (1, 4)), writer.tensor("y", (1, 4))
    writer.operator("ABS", [x], y, "AbsOptions")
    writer.operator("NEG", [x], y, "NegOptions")
    with pytest.raises(BadModel, match="NEG_1 writes 'y', which is there already"):
        load(saved_tflite(writer.finish([y]), tmp_path))


def test_constants_are_not_written(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x, y = writer.input("x", (1, 4)), writer.constant("c", np.ones((1, 4), np.float32))
    writer.operator("ABS", [x], y, "AbsOptions")
    with pytest.raises(BadModel, match="ABS_0 writes 'c', which is a constant"):
        load(saved_tflite(writer.finish([y]), tmp_path))


def test_cycle(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x, y = writer.input("x", (1, 4)), writer.tensor("y", (1, 4))
    writer.operator("ADD", [x, y], y, "AddOptions")
    with pytest.raises(BadModel, match="ADD_0 reads 'y', which nothing computes before it"):
        load(saved_tflite(writer.finish([y]), tmp_path))
