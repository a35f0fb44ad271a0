"""The rounding of a .tflite file as an option: bytes of the runtime that it names, what refuses it, and its report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.program import reference
from tests.models.test_tflite_unsigned import mobile_network
from tests.support.onnx_models import moves_data, saved
from tests.support.peers import peer
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import NONE, RELU, SAME, Network, ds_cnn, resnet
from tests.support.tflite_runners import saved_tflite
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.decisions.models import ModelOrigin
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.frontends.load import load
from tvm_ext.verification.reference_runtimes.ask import LITERT_DEFAULT

HOST = Platform.load("host")
SAMPLES = 20
SHARED = Path(os.environ.get("TVM_EXT_SHARED", Path(__file__).parents[3] / "shared"))


class Default:
    """LiteRT's default interpreter on a file."""

    def __init__(self, data: bytes) -> None:
        self.interpreter = peer("ai_edge_litert.interpreter").Interpreter(model_content=data, num_threads=1)
        self.interpreter.allocate_tensors()

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        for detail, array in zip(self.interpreter.get_input_details(), inputs, strict=True):
            self.interpreter.set_tensor(detail["index"], array)
        self.interpreter.invoke()
        return [np.array(self.interpreter.get_tensor(one["index"])) for one in self.interpreter.get_output_details()]


def differing(path: Path, samples: int = SAMPLES, platform: Platform = HOST) -> int:
    """Elements of outputs that differ from LiteRT's default interpreter's, by the kernels' references."""
    compiled = compile_module(load(path, rounding="litert"), platform, BuildOptions(rounding="litert"))
    runtime, random, found = Default(path.read_bytes()), np.random.default_rng(0), 0
    for _ in range(samples):
        inputs = [random_input(port.dtype, port.shape, random) for port in compiled.interface.inputs]
        named = {port.name: array for port, array in zip(compiled.interface.inputs, inputs, strict=True)}
        values = reference.run(compiled.program, named)
        for port, wanted in zip(compiled.interface.outputs, runtime.run(inputs), strict=True):
            found += int((values[port.name].reshape(wanted.shape) != wanted).sum())
    return found


def random_input(dtype: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if dtype == "float32":
        return random.standard_normal(shape).astype(np.float32)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


@pytest.mark.parametrize("data", [ds_cnn(int8=True), resnet(int8=True)], ids=["ds_cnn", "resnet"])
def test_networks_have_the_bytes_of_litert(data: bytes, tmp_path: Path) -> None:
    assert differing(saved_tflite(data, tmp_path)) == 0


def every_pair(kind: str, *, activation: int = NONE, constant: bool = False, seed: int = 0) -> bytes:
    """A file with an operator of two inputs of 256 elements each, broadcast to every pair."""
    net = Network(int8=True, seed=seed)
    first = net.input((1, 256, 1, 1), "a")
    every = np.arange(-128, 128).astype(np.int8).reshape(1, 1, 256, 1)
    second = net.writer.constant("b", every, net.scales()) if constant else net.input((1, 1, 256, 1), "b")
    output = net.output("y", (1, 256, 256, 1), net.scales(8.0))
    options = f"{kind.capitalize()}Options"
    net.writer.operator(kind, [first, second], output, options, FusedActivationFunction=activation)
    return net.writer.finish([output])


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("constant", [False, True])
def test_arithmetic_has_the_bytes_of_litert(kind: str, constant: bool, tmp_path: Path) -> None:
    path = saved_tflite(every_pair(kind, constant=constant, activation=RELU if kind == "SUB" else NONE), tmp_path)
    assert differing(path, 3) == 0


def one_input(kind: str, options: str = "", *, scales: Quantized | None = None, **fields: object) -> bytes:
    net = Network(int8=True, seed=4)
    x = net.input((1, 16, 16, 1))
    output = net.output("y", (1, 16, 16, 1), scales or net.scales())
    return net.writer.finish([net.writer.operator(kind, [x], output, options, **fields)])


def mean(axes: list[int]) -> bytes:
    net = Network(int8=True, seed=5)
    x = net.input((1, 7, 5, 40))
    kept = [1 if axis in axes else extent for axis, extent in enumerate((1, 7, 5, 40))]
    places = net.writer.constant("axes", np.array(axes, np.int32))
    output = net.output("y", kept)
    return net.writer.finish([net.writer.operator("MEAN", [x, places], output, "ReducerOptions", KeepDims=True)])


def resized(**modes: bool) -> bytes:
    net = Network(int8=True, seed=6)
    x = net.input((1, 7, 9, 4))
    size = net.writer.constant("size", np.array([13, 20], np.int32))
    output = net.output("y", (1, 13, 20, 4), net.writer.tensors[x].quantized)
    return net.writer.finish(
        [net.writer.operator("RESIZE_BILINEAR", [x, size], output, "ResizeBilinearOptions", **modes)]
    )


def pooled() -> bytes:
    net = Network(int8=True, seed=7)
    return net.writer.finish([net.pool(net.input((1, 9, 9, 8)), (3, 3), "p", stride=(2, 2), padding=SAME)])


def quantized() -> bytes:
    net = Network(seed=8)
    x = net.input((1, 4000))
    output = net.writer.tensor("y", (1, 4000), "int8", Quantized(scale=0.0371, zero_point=-7))
    return net.writer.finish([net.writer.operator("QUANTIZE", [x], output, "QuantizeOptions")])


OPERATORS = {
    "LEAKY_RELU": one_input("LEAKY_RELU", "LeakyReluOptions", Alpha=0.1),
    "LEAKY_RELU negative": one_input("LEAKY_RELU", "LeakyReluOptions", Alpha=-0.2),
    "QUANTIZE": one_input("QUANTIZE", "QuantizeOptions"),
    "QUANTIZE of floats": quantized(),
    "LOGISTIC": one_input("LOGISTIC", scales=Quantized(scale=1 / 256, zero_point=-128)),
    "TANH": one_input("TANH", scales=Quantized(scale=1 / 128, zero_point=0)),
    "MEAN of an image": mean([1, 2]),
    "MEAN of channels": mean([3]),
    "AVERAGE_POOL_2D": pooled(),
    "RESIZE_BILINEAR": resized(),
    "RESIZE_BILINEAR corners": resized(AlignCorners=True),
    "RESIZE_BILINEAR centers": resized(HalfPixelCenters=True),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_have_the_bytes_of_litert(name: str, tmp_path: Path) -> None:
    assert differing(saved_tflite(OPERATORS[name], tmp_path), 5) == 0


def unsigned(kind: str, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...], options: str, *numbers: list[int],
             **fields: object) -> bytes:  # fmt: skip
    """A file of one operator on uint8. numbers: constants after the inputs."""
    writer = TfliteWriter()
    read = [
        writer.input(f"x{i}", shape, "uint8", Quantized(scale=0.03 + 0.02 * i, zero_point=120 - 100 * i))
        for i, shape in enumerate(inputs)
    ]
    read += [writer.constant(f"k{i}", np.array(one, np.int32)) for i, one in enumerate(numbers)]
    keeps = kind.startswith(("AVERAGE", "RESIZE"))
    scales = Quantized(scale=0.03, zero_point=120) if keeps else Quantized(scale=0.04, zero_point=90)
    return writer.finish([writer.operator(kind, read, writer.tensor("y", output, "uint8", scales), options, **fields)])


PAIRS, EVERY = ((1, 256, 1, 1), (1, 1, 256, 1)), (1, 256, 256, 1)
WINDOW = {"Padding": SAME, "StrideW": 2, "StrideH": 2, "FilterWidth": 3, "FilterHeight": 3}
UNSIGNED = {
    **{kind: unsigned(kind, PAIRS, EVERY, f"{kind.capitalize()}Options") for kind in ("ADD", "SUB", "MUL")},
    "LEAKY_RELU": unsigned("LEAKY_RELU", PAIRS[:1], PAIRS[0], "LeakyReluOptions", Alpha=-0.2),
    "MEAN": unsigned("MEAN", [(1, 7, 5, 40)], (1, 40), "ReducerOptions", [1, 2]),
    "QUANTIZE": unsigned("QUANTIZE", PAIRS[:1], PAIRS[0], "QuantizeOptions"),
    "AVERAGE_POOL_2D": unsigned("AVERAGE_POOL_2D", [(1, 9, 9, 8)], (1, 5, 5, 8), "Pool2DOptions", **WINDOW),
    "RESIZE_BILINEAR": unsigned(
        "RESIZE_BILINEAR", [(1, 7, 9, 4)], (1, 13, 20, 4), "ResizeBilinearOptions", [13, 20], HalfPixelCenters=True
    ),
    "a network": mobile_network(),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_bytes_are_those_of_litert(name: str, tmp_path: Path) -> None:
    assert differing(saved_tflite(UNSIGNED[name], tmp_path), 3) == 0


@pytest.mark.sweep
@pytest.mark.parametrize(
    "name",
    "models/kws_int8 models/resnet_int8 real/diy_alexa real/fingerprint real/har real/hps_89ops real/micro_kws_int8 "
    "real/rnnoise_int8 real/tinyengine_detection real/micro_speech_uint8".split(),
)
def test_files_of_users_have_the_bytes_of_litert_on_a_thousand_inputs(name: str) -> None:
    path = SHARED / f"{name}.tflite"
    if not path.exists():
        pytest.skip("the file is not on this machine")
    assert differing(path, 1000) == 0


def test_the_report_names_the_rounding_and_its_runtime(tmp_path: Path) -> None:
    path = saved_tflite(ds_cnn(int8=True), tmp_path)
    package = tvm_ext.build(
        load(path, rounding="litert"), HOST, tmp_path / "package", BuildOptions(rounding="litert", verify=("host",))
    )
    host = package.report["verify"]["host"]
    assert (host["reference"], host["passed"], host["differing"]) == (LITERT_DEFAULT.name, True, 0)
    assert package.report["model"]["quantized_rounding"] == "litert"
    (port,) = package.interface.inputs
    random = np.random.default_rng(3)
    layers = tvm_ext.compare(package, {port.source: random_input(port.dtype, port.shape, random)}, reference=path)
    assert layers.runtime == LITERT_DEFAULT.name and layers.num_compared == len(layers.layers) == 8
    assert {one.verdict for one in layers.layers} == {"equal"}
    x = random_input(port.dtype, (4, *port.shape[1:]), random)
    found = package.evaluate(x, np.arange(4), reference=path)
    assert found.reference is not None and found.reference.runtime == LITERT_DEFAULT.name
    assert found.reference.scores == found.scores


@pytest.mark.parametrize(
    ("option", "meaning"), [("model", "tflite"), ("tflm", "tflite"), ("litert", "litert"), ("once", "onnx")]
)
def test_the_module_has_the_rounding(option: str, meaning: str, tmp_path: Path) -> None:
    path = saved_tflite(ds_cnn(int8=True), tmp_path)
    assert ModelOrigin.read(load(path, rounding=option)).rounding == meaning  # type: ignore[arg-type]


def test_a_build_refuses_a_module_of_another_rounding(tmp_path: Path) -> None:
    module = load(saved_tflite(ds_cnn(int8=True), tmp_path))
    with pytest.raises(BadOptions, match="loaded with the rounding 'tflm', and the build asks for 'once'"):
        compile_module(module, HOST, BuildOptions(rounding="once"))


def test_files_of_other_formats_have_one_rounding(tmp_path: Path) -> None:
    path = saved(moves_data(), tmp_path)
    assert ModelOrigin.read(load(path, rounding="once")).option == "once"
    with pytest.raises(BadOptions, match=r"is no \.tflite file"):
        load(path, rounding="litert")
