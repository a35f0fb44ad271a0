"""Quantized TensorFlow Lite models give the very bytes of TensorFlow Lite Micro."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.packages import HOST_ONLY
from tests.support.tflite_file import Quantized
from tests.support.tflite_models import NETWORKS, NONE, RELU, RELU6, SAME, Network
from tests.support.tflite_runners import referenced, saved_tflite, tflite_micro
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


@pytest.mark.filterwarnings("ignore::tvm_ext.load.ModelNotice")
@pytest.mark.parametrize("name", HASHES)
def test_shared_models(name: str, shared_models: Path, tmp_path: Path) -> None:
    package = tvm_ext.build(tvm_ext.load(shared_models / f"{name}.tflite"), "host", tmp_path / name, HOST_ONLY)
    ((input_name, spec),) = package.inputs.items()
    with HostModel(package.folder, package.interface) as model:
        outputs = [next(iter(model.run({input_name: x}).values())).tobytes() for x in inputs(spec.shape)]
    assert (*(fnv(data) for data in outputs[:3]), fnv(b"".join(outputs))) == HASHES[name]


@pytest.mark.parametrize("name", NETWORKS)
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
    "conv": ("qconv2d_i8", lambda net: net.conv(net.input((1, 9, 9, 3)), 7, (3, 3), "c", stride=(2, 1))),
    "dilated": (
        "qconv2d_i8",
        lambda n: n.conv(n.input((1, 9, 9, 3)), 5, (3, 3), "c", dilation=(2, 2), activation=RELU6),
    ),
    "depthwise": ("qdepthwise_i8", lambda net: net.depthwise(net.input((1, 7, 9, 6)), (3, 3), "d", activation=RELU6)),
    "multiplier": ("qconv2d_i8", lambda net: net.depthwise(net.input((1, 9, 9, 3)), (3, 3), "d", multiplier=2)),
    "dense": ("qdense_i8", lambda net: net.dense(net.input((2, 30)), 7, "d", activation=RELU)),
    "dense by channel": ("qdense_i8", lambda net: net.dense(net.input((2, 30)), 7, "d", per_channel=True)),
    "average": ("qpool2d_i8", lambda n: n.pool(n.input((1, 7, 7, 5)), (3, 3), "p", stride=(2, 2), padding=SAME)),
    "average relu": ("qpool2d_i8", lambda net: net.pool(net.input((1, 6, 6, 5)), (2, 3), "p", activation=RELU)),
    "max": ("qpool2d_i8", lambda n: n.pool(n.input((1, 7, 7, 5)), (3, 3), "p", kind="MAX_POOL_2D", padding=SAME)),
    "add": ("qbinary_i8", binary("ADD", RELU)),
    "subtract": ("qbinary_i8", binary("SUB")),
    "multiply": ("qbinary_i8", binary("MUL", RELU6)),
    "softmax": ("qsoftmax_tflite_i8", lambda net: net.softmax(net.input((4, 20)), "s")),
    "relu": ("qunary_i8", unary("RELU")),
    "leaky relu": ("qunary_i8", unary("LEAKY_RELU", "LeakyReluOptions", Alpha=0.1)),
    "requantize": ("qunary_i8", unary("QUANTIZE", "QuantizeOptions")),
    "logistic": ("qunary_i8", unary("LOGISTIC", output=Quantized(scale=1 / 256, zero_point=-128))),
    "tanh": ("qunary_i8", unary("TANH", output=Quantized(scale=1 / 128))),
}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("seed", range(3))
def test_layers(layer: str, seed: int, tmp_path: Path) -> None:
    """One layer with random scales, zero points and weights, by the kernel it is meant to run on."""
    kernel, make = LAYERS[layer]
    net = Network(int8=True, seed=seed)
    data = net.writer.finish([make(net)])
    random = np.random.default_rng(seed)
    arrays = [random.integers(-128, 128, net.shape(index)).astype(np.int8) for index in net.writer.inputs]
    found, kernels = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))
    assert kernels == [kernel]


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
