"""Quantized TensorFlow Lite models give the very bytes of TensorFlow Lite Micro."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.sweeps import some_of
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import NETWORKS, NONE, RELU, RELU6, SAME, VALID, Network
from tests.support.tflite_runners import litert, referenced, saved_tflite, tflite_micro
from tvm_ext.execution.host_model import HostModel

# Measured with TensorFlow Lite Micro: FNV-1a over the output bytes for inputs of seeds 1, 2, 3 and 1 to 100.
HASHES = {
    "kws_int8": (0xAB2FDBF1, 0x8F56E193, 0x2E56CAE1, 0x7E33B3BF),
    "resnet_int8": (0x557BD362, 0xF7FEA418, 0xAF981753, 0x724245AE),
}
NUM_SEEDS = 100


def inputs(shape: tuple[int, ...]) -> np.ndarray:
    """int8[100, ...]: for each seed from 1 on the upper bytes of a linear congruential generator."""
    state = np.arange(1, NUM_SEEDS + 1, dtype=np.uint32)
    drawn = np.empty((int(np.prod(shape)), NUM_SEEDS), np.uint8)
    for row in drawn:
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        row[:] = state >> np.uint32(24)
    return drawn.T.copy().view(np.int8).reshape(NUM_SEEDS, *shape)


def fnv(data: bytes, start: int = 2166136261) -> int:
    for byte in data:
        start = ((start ^ byte) * 16777619) & 0xFFFFFFFF
    return start


@pytest.mark.filterwarnings("ignore::tvm_ext.frontends.load.ModelNotice")
@pytest.mark.parametrize("name", some_of(["kws_int8"], sweep=["resnet_int8"]))
def test_shared_models(name: str, shared_models: Path, tmp_path: Path) -> None:
    package = tvm_ext.build(tvm_ext.load(shared_models / f"{name}.tflite"), "host", tmp_path / name, HOST_ONLY)
    ((input_name, spec),) = package.inputs.items()
    with HostModel(package.folder, package.interface) as model:
        outputs = [next(iter(model.run({input_name: x}).values())).tobytes() for x in inputs(spec.shape)]
    assert (*(fnv(data) for data in outputs[:3]), fnv(b"".join(outputs))) == HASHES[name]


@pytest.mark.parametrize("name", some_of([*NETWORKS][:2], sweep=[*NETWORKS][2:]))
def test_random_networks(name: str, tmp_path: Path) -> None:
    data = NETWORKS[name](int8=True)
    path = saved_tflite(data, tmp_path, name)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY)
    ((input_name, spec),) = package.inputs.items()
    random = np.random.default_rng(4)
    with HostModel(package.folder, package.interface) as model:
        for _ in range(10):
            x = random.integers(-128, 128, spec.shape).astype(np.int8)
            (found,) = model.run({input_name: x}).values()
            np.testing.assert_array_equal(found, tflite_micro(data, [x]))


def unary(kind: str, options: str = "", output: Quantized | None = None, **fields: float) -> Callable[[Network], int]:
    def make(net: Network) -> int:
        x = net.input((1, 8, 8, 16))
        return net.writer.operator(kind, [x], net.output("y", (1, 8, 8, 16), output), options, **fields)

    return make


def binary(kind: str, activation: int = NONE) -> Callable[[Network], int]:
    return lambda net: net.binary(kind, net.input((1, 4, 4, 8), "a"), net.input((1, 4, 4, 8), "b"), "y", activation)


LAYERS: dict[str, tuple[str, Callable[[Network], int]]] = {
    "conv": ("qconv2d_host", lambda net: net.conv(net.input((1, 9, 9, 3)), 7, (3, 3), "c", stride=(2, 1))),
    "dilated": (
        "qconv2d_host",
        lambda n: n.conv(n.input((1, 9, 9, 3)), 5, (3, 3), "c", dilation=(2, 2), activation=RELU6),
    ),
    "groups": ("qconv2d_i8", lambda net: net.conv(net.input((1, 7, 9, 16)), 24, (3, 3), "c", groups=4)),
    "depthwise": ("qdepthwise_host", lambda net: net.depthwise(net.input((1, 7, 9, 6)), (3, 3), "d", activation=RELU6)),
    "multiplier": ("qconv2d_i8", lambda net: net.depthwise(net.input((1, 9, 9, 3)), (3, 3), "d", multiplier=2)),
    "dense": ("qdense_host", lambda net: net.dense(net.input((2, 30)), 7, "d", activation=RELU)),
    "dense by channel": ("qdense_host", lambda net: net.dense(net.input((2, 30)), 7, "d", per_channel=True)),
    "average": ("qpool2d_i8", lambda n: n.pool(n.input((1, 7, 7, 5)), (3, 3), "p", stride=(2, 2), padding=SAME)),
    "average relu": ("qpool2d_i8", lambda net: net.pool(net.input((1, 6, 6, 5)), (2, 3), "p", activation=RELU)),
    "max": ("qpool2d_i8", lambda n: n.pool(n.input((1, 7, 7, 5)), (3, 3), "p", kind="MAX_POOL_2D", padding=SAME)),
    "add": ("qbinary_host", binary("ADD", RELU)),
    "subtract": ("qbinary_host", binary("SUB")),
    "multiply": ("qbinary_i8", binary("MUL", RELU6)),
    "softmax": ("qsoftmax_tflite_i8", lambda net: net.softmax(net.input((4, 20)), "s")),
    "relu": ("qunary_i8", unary("RELU")),
    "leaky relu": ("qunary_i8", unary("LEAKY_RELU", "LeakyReluOptions", Alpha=0.1)),
    "requantize": ("qunary_i8", unary("QUANTIZE", "QuantizeOptions")),
    "logistic": ("qunary_i8", unary("LOGISTIC", output=Quantized(scale=1 / 256, zero_point=-128))),
    "tanh": ("qunary_i8", unary("TANH", output=Quantized(scale=1 / 128))),
}


def reduced(kind: str, axes: Sequence[int], *, keeps: bool = True) -> Callable[[Network], int]:
    """MEAN or SUM of [1, 7, 5, 6] over some axes."""

    def make(net: Network) -> int:
        x = net.input((1, 7, 5, 6))
        kept = [1 if axis in axes else extent for axis, extent in enumerate(net.shape(x)) if keeps or axis not in axes]
        places = net.writer.constant("axes", np.array(axes, np.int32))
        output = net.output("y", kept, net.scales(40.0) if kind == "SUM" else None)
        return net.writer.operator(kind, [x, places], output, "ReducerOptions", KeepDims=keeps)

    return make


LAYERS |= {
    "mean": ("qpool2d_i8", reduced("MEAN", [1, 2])),
    "mean of rows": ("qmean_i8", reduced("MEAN", [1], keeps=False)),
    "mean of channels": ("qmean_i8", reduced("MEAN", [3])),
    "sum": ("qmean_i8", reduced("SUM", [1, 2])),
    "sum of channels": ("qmean_i8", reduced("SUM", [3], keeps=False)),
}


def _of_words(kernel: str) -> str:
    """The kernel for activations of 16 bits, all of which are in portable C."""
    return f"{kernel.rpartition('_')[0]}_i16".replace("qunary", "qlinear")


# Kernels of layers that TensorFlow Lite Micro computes on int16, too.
WORDS: dict[str, tuple[str, Callable[[Network], int]]] = {
    **{
        name: (_of_words(LAYERS[name][0]), LAYERS[name][1])
        for name in "conv,dilated,depthwise,multiplier,dense,dense by channel,average,average relu,max,add,subtract,"
        "multiply,leaky relu,requantize".split(",")
    },
    "mean": ("qpool2d_i16", reduced("MEAN", [1, 2])),
    "mean of rows": ("qmean_i16", reduced("MEAN", [1], keeps=False)),
    "sum of channels": ("qmean_i16", reduced("SUM", [3])),
    "deep": ("qconv2d_i16", lambda net: net.conv(net.input((1, 3, 3, 300)), 6, (3, 3), "c", activation=NONE)),
    "wide": ("qdense_i16", lambda net: net.dense(net.input((1, 700)), 6, "d")),
    "transposed": ("qconv2d_transpose_i16", lambda net: transposed(net, (5, 6), (2, 2), SAME)),
    "transposed valid": ("qconv2d_transpose_i16", lambda net: transposed(net, (5, 6), (3, 1), VALID)),
    "repeated": (
        "qbroadcast_i16",
        lambda net: net.binary("SUB", net.input((1, 4, 4, 8), "a"), net.input((1, 1, 1, 8), "b"), "y"),
    ),
}
LAYERS |= {
    "transposed": ("qconv2d_transpose_i8", lambda net: transposed(net, (5, 6), (2, 2), SAME)),
    "transposed valid": ("qconv2d_transpose_i8", lambda net: transposed(net, (5, 6), (3, 1), VALID)),
}


def transposed(net: Network, extents: tuple[int, int], stride: tuple[int, int], padding: int) -> int:
    """TRANSPOSE_CONV of 3x4 taps from 6 channels to 5."""
    x = net.input((1, *extents, 6))
    given = net.weights("t", (5, 3, 4, 6), 0, x)
    reach = (3, 4) if padding == VALID else stride
    size = (1, *((e - 1) * s + r for e, s, r in zip(extents, stride, reach, strict=True)), 5)
    shape = net.writer.constant("size", np.array(size, np.int32))
    return net.writer.operator(
        "TRANSPOSE_CONV", [shape, given[0], x, given[1]], net.output("t", size), "TransposeConvOptions",
        Padding=padding, StrideH=stride[0], StrideW=stride[1],
    )  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("seed", range(3))
def test_layers(layer: str, seed: int, tmp_path: Path) -> None:
    """One layer with random scales, zero points and weights, by the kernel it is meant to run on."""
    check_layer(*LAYERS[layer], Network(int8=True, seed=seed), tmp_path)


@pytest.mark.parametrize("layer", WORDS)
@pytest.mark.parametrize("seed", some_of([0, 1], sweep=range(2, 30)))
def test_layers_of_words(layer: str, seed: int, tmp_path: Path) -> None:
    """The same on int16 activations, with int8 weights and biases of 64 bits."""
    check_layer(*WORDS[layer], Network(int16=True, seed=seed), tmp_path)


def check_layer(kernel: str, make: Callable[[Network], int], net: Network, tmp_path: Path) -> None:
    data = net.writer.finish([make(net)])
    arrays = [net.sample(index) for index in net.writer.inputs]
    found, kernels = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))
    assert kernels == [kernel]


@pytest.mark.parametrize("bias", ["int32", "none"])
@pytest.mark.parametrize("seed", range(2))
def test_biases_of_words(bias: str, seed: int, tmp_path: Path) -> None:
    """A bias of 32 bits has sums of 32 bits, rounded twice; without one they have 64."""
    net = Network(int16=True, seed=seed)
    x = net.input((1, 6, 6, 4))
    weight, wide = net.weights("c", (5, 3, 3, 4), 0, x)
    scales = net.writer.tensors[wide].quantized
    narrow = net.writer.constant("narrow", net.random.integers(-90000, 90000, 5).astype(np.int32), scales)
    output = net.writer.operator(
        "CONV_2D", [x, weight, *([narrow] if bias == "int32" else [])], net.output("c", (1, 6, 6, 5)), "Conv2DOptions",
        Padding=SAME, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1,
    )  # fmt: skip
    data, arrays = net.writer.finish([output]), [net.sample(x)]
    found, kernels = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))
    assert kernels == ["qconv2d_i16"]


def test_bias_with_the_axis_of_its_weights(tmp_path: Path) -> None:
    """Older converters name the weights' axis for the scales of a bias, which has but one."""
    net = Network(int8=True)
    x = net.input((1, 6, 6, 4))
    y = net.depthwise(x, (3, 3), "d")
    bias = next(tensor for tensor in net.writer.tensors if tensor.name == "d/bias")
    bias.quantized = replace(bias.quantized, axis=3)
    data, arrays = net.writer.finish([y]), [net.sample(x)]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))


def test_size_of_transposed_convolution_as_input(tmp_path: Path) -> None:
    """TensorFlow Lite Micro goes by the shape in the file, and so does the package, whatever the input says."""
    net = Network(int16=True)
    size, x = net.writer.input("size", (4,), "int32"), net.input((1, 5, 6, 6))
    given = net.weights("t", (5, 3, 4, 6), 0, x)
    output = net.writer.operator(
        "TRANSPOSE_CONV", [size, given[0], x, given[1]], net.output("t", (1, 10, 6, 5)), "TransposeConvOptions",
        Padding=SAME, StrideH=2, StrideW=1,
    )  # fmt: skip
    data, arrays = net.writer.finish([output]), [np.array([1, 10, 6, 5], np.int32), net.sample(x)]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))


@pytest.mark.parametrize("dtype", ["float32", "int8", "int16"])
@pytest.mark.parametrize("activation", [RELU, RELU6])
def test_transposed_convolution_with_an_activation(activation: int, dtype: str, tmp_path: Path) -> None:
    """As Keras writes it. TensorFlow Lite Micro ignores the activation, LiteRT computes it."""
    net = Network(int8=dtype == "int8", int16=dtype == "int16", seed=3)
    x = net.input((1, 5, 6, 6))
    given = net.weights("t", (5, 3, 4, 6), 0, x)
    shape = net.writer.constant("size", np.array([1, 10, 12, 5], np.int32))
    output = net.writer.operator(
        "TRANSPOSE_CONV", [shape, given[0], x, given[1]], net.output("t", (1, 10, 12, 5)), "TransposeConvOptions",
        Padding=SAME, StrideH=2, StrideW=2, FusedActivationFunction=activation,
    )  # fmt: skip
    path, arrays = saved_tflite(net.writer.finish([output]), tmp_path), [net.sample(x)]
    found, _ = referenced(path, arrays)
    np.testing.assert_allclose(
        found[0], litert(path.read_bytes(), arrays)[0], rtol=0, atol=1e-6 if dtype == "float32" else 0
    )
    if dtype == "int8":
        package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "package")
        assert package.report["verify"]["host"]["reference"] == "LiteRT"


def test_moves_stay_on_integers(tmp_path: Path) -> None:
    net = Network(int8=True)
    x = net.input((1, 4, 6, 2))
    same = net.writer.tensors[x].quantized
    order = net.writer.constant("order", np.array([0, 2, 1, 3], np.int32))
    turned = net.writer.operator("TRANSPOSE", [x, order], net.output("turned", (1, 6, 4, 2), same), "TransposeOptions")
    joined = net.writer.operator(
        "CONCATENATION", [turned, turned], net.output("joined", (1, 6, 8, 2), same), "ConcatenationOptions", Axis=2
    )
    data = net.writer.finish([net.pad(joined, [(0, 0), (1, 0), (0, 2), (0, 0)], "padded")])
    arrays = [np.random.default_rng(0).integers(-128, 128, (1, 4, 6, 2)).astype(np.int8)]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))


def test_scales_of_a_dense_layer_are_multiplied_in_double_precision(tmp_path: Path) -> None:
    """In single precision the sum of the first channel would be one step further from zero."""
    source, weight, result = 0.024790890514850616, 0.0195566825568676, 0.36449846625328064
    writer = TfliteWriter()
    x = writer.input("x", (1, 4), "int8", Quantized(scale=source))
    w = writer.constant("w", np.ones((2, 4), np.int8), Quantized(scale=weight))
    bias = np.array([-88337, 88337], np.int32)
    b = writer.constant("b", bias, Quantized(scale=float(np.float32(source) * np.float32(weight))))
    y = writer.tensor("y", (1, 2), "int8", Quantized(scale=result))
    data = writer.finish([writer.operator("FULLY_CONNECTED", [x, w, b], y, "FullyConnectedOptions")])
    inputs = [np.zeros((1, 4), np.int8)]
    found, _ = referenced(saved_tflite(data, tmp_path), inputs)
    np.testing.assert_array_equal(found[0], tflite_micro(data, inputs))
    assert found[0].tolist() == [[-117, 117]]
