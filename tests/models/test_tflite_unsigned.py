"""TensorFlow Lite files of unsigned bytes give the very bytes of LiteRT, by its reference and its optimized kernels.

TensorFlow Lite Micro has no kernels for most of them.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from benchmarks.tflite_cases import elementwise, layers, movement
from tests.support.packages import HOST_ONLY
from tests.support.peers import peer
from tests.support.sweeps import some_of
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import RELU6, Network
from tests.support.tflite_runners import litert, referenced, saved_tflite
from tests.support.tflite_unsigned import to_unsigned_bytes
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.load import ModelNotice, load

CASES = {
    case.name: case
    for cases in itertools.chain(elementwise.CASES.values(), movement.CASES.values(), layers.CASES.values())
    for case in cases if "int8" in case.types and not case.name.startswith(("SVDF", "LSTM"))
}  # fmt: skip
LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "DEPTHWISE_CONV_2D multiplier", "FULLY_CONNECTED", "TRANSPOSE_CONV")
OURS = (
    *LAYERS, "ADD constant", "SUB one number", "MUL constant", "MAXIMUM constant", "GREATER_EQUAL", "PRELU",
    "L2_NORMALIZATION", "RESIZE_BILINEAR (8, 12) {'HalfPixelCenters': True}", "RESIZE_BILINEAR (3, 7) {}",
    "RESIZE_NEAREST_NEIGHBOR (3, 7) {'HalfPixelCenters': True}", "SELECT_V2", "SOFTMAX beta",
    "AVERAGE_POOL_2D {'padding': 0}", "LOGISTIC", "MEAN [3] own",
)  # fmt: skip
IN_FLOAT = ("SOFTMAX", "LOG_SOFTMAX", "DIV", "RESIZE_BILINEAR (3, 7)", "RESIZE_BILINEAR (8, 12) {'AlignCorners': True}")
"""Cases that LiteRT computes in single precision too, or that DIV of real numbers rounds once."""


def unsigned(name: str, seed: int) -> tuple[bytes, list[np.ndarray]]:
    """The file of a case, and inputs of it."""
    net, case = Network(int8=True, seed=seed), CASES[name]
    outputs = list(case.make(net))
    to_unsigned_bytes(net.writer, net.random)
    return net.writer.finish(outputs), [case._drawn(net, index) for index in net.writer.inputs]


def optimized(data: bytes, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """LiteRT's optimized kernels, without a delegate."""
    module = peer("ai_edge_litert.interpreter")
    resolver = module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = module.Interpreter(model_content=data, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


SWEEP = [(name, seed) for name in CASES for seed in (0, 1, 2) if (name, seed) not in [(ours, 1) for ours in OURS]]


@pytest.mark.parametrize("chosen", some_of([(name, 1) for name in OURS], sweep=SWEEP), ids=str)
def test_operators(chosen: tuple[str, int], tmp_path: Path) -> None:
    name, seed = chosen
    data, arrays = unsigned(name, seed)
    path = saved_tflite(data, tmp_path)
    try:
        expected = litert(data, arrays)[0]
    except (RuntimeError, ValueError):
        pytest.skip("LiteRT refuses it")
    found, kernels = referenced(path, arrays)
    np.testing.assert_array_equal(found[0], expected)
    assert "generic" in kernels or not name.startswith(IN_FLOAT)


@pytest.mark.parametrize("name", some_of(LAYERS[:2], sweep=[*LAYERS[2:]]))
@pytest.mark.parametrize("zero_point", [0, 100, 128, 255])
def test_layers_by_zero_point(name: str, zero_point: int, tmp_path: Path) -> None:
    """Weights around any zero point; those of 128 are int8, and no channel needs 9 bits."""
    net = Network(int8=True, seed=zero_point)
    outputs = list(CASES[name].make(net))
    to_unsigned_bytes(net.writer, net.random, zero_point=zero_point)
    data, arrays = net.writer.finish(outputs), [CASES[name]._drawn(net, index) for index in net.writer.inputs]
    found, kernels = referenced(saved_tflite(data, tmp_path), arrays)
    for runs in (litert, optimized):
        np.testing.assert_array_equal(found[0], runs(data, arrays)[0])
    assert any("nine_bits" in kernel for kernel in kernels) == (zero_point != 128)


def mobile_network() -> bytes:
    """Depthwise-separable blocks, of which one weight in fifty lies beyond int8."""
    net = Network(int8=True, seed=1)
    x = net.conv(net.input((1, 13, 12, 3)), 8, (3, 3), "stem", stride=(2, 2))
    for block in range(2):
        x = net.depthwise(x, (3, 3), f"depthwise_{block}", activation=RELU6)
        x = net.conv(x, 16 if block else 8, (1, 1), f"pointwise_{block}")
    x = net.pool(x, net.shape(x)[1:3], "pool")
    x = net.dense(net.reshape(x, (-1, 16), "flat"), 12, "logits")
    outputs = [net.softmax(x, "probabilities")]
    with_few_weights_beyond_int8(net)
    return net.writer.finish(outputs)


def with_few_weights_beyond_int8(net: Network, share: float = 0.02) -> None:
    """Turn a network into one of unsigned bytes, of which a share of the weights lies beyond int8."""
    to_unsigned_bytes(net.writer, net.random, zero_point=128)
    for tensor in net.writer.tensors:
        if tensor.name.endswith("/weight"):
            given = np.frombuffer(net.writer.buffers[tensor.buffer], np.uint8)
            scarce = np.where(net.random.random(given.size) < share, 0, given.clip(14, 255))
            net.writer.buffers[tensor.buffer] = scarce.astype(np.uint8).tobytes()
            tensor.quantized = Quantized(scale=tensor.quantized.scale, zero_point=141)


@pytest.mark.parametrize("kernel", some_of([2], sweep=[3]))
def test_pools_after_such_layers(kernel: int, tmp_path: Path) -> None:
    """A call of a sequence computes all rows of a window of the pool, and scratch holds the channels of all of them."""
    net = Network(int8=True, seed=2)
    x = net.conv(net.input((1, 24, 24, 3)), 16, (5, 5), "first")
    x = net.pool(x, (kernel, kernel), "pool", kind="MAX_POOL_2D")
    outputs = [net.pool(net.conv(x, 12, (5, 5), "second"), (kernel, kernel), "last", kind="MAX_POOL_2D")]
    with_few_weights_beyond_int8(net, 0.002)
    data = net.writer.finish(outputs)
    package = tvm_ext.build(tvm_ext.load(saved_tflite(data, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert [step["kernel"] for step in package.report["steps"]] == ["qconv2d_host+nine_bits, qpool2d_i8"] * 2
    ((name, spec),) = package.inputs.items()
    random = np.random.default_rng(4)
    with package.session() as session:
        for _ in range(5):
            x = random.integers(0, 256, spec.shape).astype(np.uint8)
            np.testing.assert_array_equal(*session.run({name: x}).values(), litert(data, [x])[0])


def test_networks(tmp_path: Path) -> None:
    """A whole package, of which the report names what computes in float."""
    data = mobile_network()
    module = tvm_ext.load(saved_tflite(data, tmp_path))
    with pytest.warns(ModelNotice, match=r"computes .* in float"):
        package = tvm_ext.build(module, "host", tmp_path / "out", HOST_ONLY)
    assert {step["source_nodes"][0] for step in package.report["float_operations"]} == {"SOFTMAX_8"}
    kernels = [step["kernel"] for step in package.report["steps"]]
    assert sum("+nine_bits" in kernel for kernel in kernels) >= 2
    ((input_name, spec),) = package.inputs.items()
    random = np.random.default_rng(4)
    with HostModel(package.folder, package.interface) as model:
        for _ in range(20):
            x = random.integers(0, 256, spec.shape).astype(np.uint8)
            (found,) = model.run({input_name: x}).values()
            np.testing.assert_array_equal(found, litert(data, [x])[0])


def test_scales_are_multiplied_in_single_precision(tmp_path: Path) -> None:
    """Of a layer on unsigned bytes, where single and double precision give other elements."""
    source, weight, result = np.float32(0.0391), np.float32(0.00317), np.float32(0.00712)
    writer = TfliteWriter()
    x = writer.input("x", (1, 1, 256, 1), "uint8", Quantized(scale=float(source), zero_point=0))
    w = writer.constant("w", np.full((1, 1, 1, 1), 255, np.uint8), Quantized(scale=float(weight), zero_point=3))
    b = writer.constant("b", np.array([2_000_000], np.int32), Quantized(scale=float(source * weight)))
    y = writer.operator(
        "CONV_2D", [x, w, b], writer.tensor("y", (1, 1, 256, 1), "uint8", Quantized(scale=float(result))),
        "Conv2DOptions", Padding=1, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1,
    )  # fmt: skip
    data, array = writer.finish([y]), np.arange(256, dtype=np.uint8).reshape(1, 1, 256, 1)
    found, _ = referenced(saved_tflite(data, tmp_path), [array])
    np.testing.assert_array_equal(found[0], litert(data, [array])[0])


def layer_of(weights: np.ndarray, quantized: Quantized) -> bytes:
    """A convolution of unsigned bytes."""
    writer = TfliteWriter()
    x = writer.input("x", (1, 4, 4, 3), "uint8", Quantized(scale=0.1, zero_point=9))
    w = writer.constant("w", weights, quantized)
    b = writer.constant("b", np.zeros(2, np.int32), Quantized(scale=0.1 * float(np.atleast_1d(quantized.scale)[0])))
    y = writer.operator(
        "CONV_2D", [x, w, b], writer.tensor("y", (1, 4, 4, 2), "uint8", Quantized(scale=0.1)), "Conv2DOptions",
        Padding=0, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1,
    )  # fmt: skip
    return writer.finish([y])


def test_refusals(tmp_path: Path) -> None:
    weights = np.ones((2, 3, 3, 3), np.uint8)
    by_channel = layer_of(weights, Quantized(scale=[0.1, 0.2], zero_point=7))
    with pytest.raises(UnsupportedModel, match="its uint8 weights have several scales"):
        load(saved_tflite(by_channel, tmp_path))
    signed = layer_of(weights.astype(np.int8), Quantized(scale=0.1))
    with pytest.raises(UnsupportedModel, match="its weights are int8, its input is uint8"):
        load(saved_tflite(signed, tmp_path))
