"""Models as onnxruntime's own quantizer writes them: taken, in integer kernels, and its own runtime agrees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime import quantization as tools

import tvm_ext
from tests.models.onnx_models import model_of, saved
from tests.support.packages import HOST_ONLY
from tvm_ext.core.errors import UnsupportedModel

NODE = helper.make_node
SHAPE = (1, 3, 12, 12)
FORMS = [
    ("QDQ", "QInt8", "QInt8"),
    ("QDQ", "QUInt16", "QInt8"),
    ("QOperator", "QUInt8", "QInt8"),
    pytest.param("QDQ", "QUInt8", "QUInt8", marks=pytest.mark.sweep),
    pytest.param("QDQ", "QUInt8", "QInt8", marks=pytest.mark.sweep),
    pytest.param("QDQ", "QInt16", "QInt8", marks=pytest.mark.sweep),
    pytest.param("QDQ", "QInt16", "QUInt8", marks=pytest.mark.sweep),
    pytest.param("QOperator", "QInt8", "QInt8", marks=pytest.mark.sweep),
]
"""Form, types of activations and of weights. uint8 weights have 7 bits, as for processors whose products saturate."""


def network() -> onnx.ModelProto:
    """A network of the operators that the quantizer knows, each of them once at least."""
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array(random.normal(0, 0.3, shape).astype(np.float32), name)

    nodes = [
        NODE("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], strides=[2, 2]),
        NODE("Relu", ["c1"], ["r1"]),
        NODE("Conv", ["r1", "w2", "b2"], ["c2"], group=8, pads=[1, 1, 1, 1]),
        NODE("LeakyRelu", ["c2"], ["l"], alpha=0.2),
        NODE("Conv", ["l", "w3"], ["c3"]),
        NODE("Add", ["c3", "r1"], ["sum"]),
        NODE("Sigmoid", ["sum"], ["gate"]),
        NODE("Mul", ["sum", "gate"], ["gated"]),
        NODE("Concat", ["gated", "l"], ["joined"], axis=1),
        NODE("MaxPool", ["joined"], ["largest"], kernel_shape=[2, 2]),
        NODE("AveragePool", ["largest"], ["average"], kernel_shape=[2, 2], strides=[1, 1]),
        NODE("GlobalAveragePool", ["average"], ["pooled"]),
        NODE("Flatten", ["pooled"], ["flat"]),
        NODE("Gemm", ["flat", "w4", "b4"], ["logits"], transB=1),
        NODE("Softmax", ["logits"], ["y"], axis=-1),
    ]
    weights = [
        weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("w2", 8, 1, 3, 3), weight("b2", 8), weight("w3", 8, 8, 1, 1),
        weight("w4", 10, 16), weight("b4", 10),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    return model


def calibration() -> Iterator[dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    return iter([{"x": random.normal(0, 1, SHAPE).astype(np.float32)} for _ in range(8)])


def quantized(folder: Path, form: str, activations: str, weights: str) -> Path:
    """The file that onnxruntime's quantize_static writes."""

    class Reader(tools.CalibrationDataReader):
        def __init__(self) -> None:
            self.samples = calibration()

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.samples, None)

    source, target = saved(network(), folder), folder / "quantized.onnx"
    tools.quantize_static(
        source, target, Reader(), quant_format=tools.QuantFormat[form], per_channel=True,
        activation_type=tools.QuantType[activations], weight_type=tools.QuantType[weights],
        reduce_range=weights == "QUInt8",
    )  # fmt: skip
    return target


@pytest.mark.parametrize(("form", "activations", "weights"), FORMS)
def test_all_products_are_integers(form: str, activations: str, weights: str, tmp_path: Path) -> None:
    path = quantized(tmp_path, form, activations, weights)
    package = tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["passed"]
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    found = {step["kernel"] for step in package.report["steps"] if step.get("macs")}
    is_wide = activations.endswith("16")
    assert {"qconv2d", "qdepthwise", "qdense", "qbinary"} <= {
        kernel.rpartition("_")[0] for kernel in found if kernel.endswith("_i16") == is_wide
    }
    assert not {kernel for kernel in found if kernel == "generic" or kernel.endswith("f32")}


def one_operator(kind: str, extra: list[str], *, scale: float = 0.1, **attributes: object) -> onnx.ModelProto:
    """x, quantized, through one operator of onnxruntime's. extra: its inputs behind those of x."""
    constants = {
        "scale": np.array(scale, np.float32), "zero": np.array(3, np.uint8), "b": np.ones((12, 12), np.int8),
        "none": np.array(0, np.int8), "c": np.arange(12, dtype=np.int32),
        "halves": np.linspace(0.01, 0.02, 12, dtype=np.float32), "nones": np.zeros(12, np.int8),
        "fine": np.array(0.1, np.float32),
    }  # fmt: skip
    given = ["q", "scale", "zero"] if kind != "QLinearConcat" else []
    nodes = [
        NODE("QuantizeLinear", ["x", "fine", "zero"], ["q"]),
        NODE(kind, [*given, *extra], ["r"], domain="com.microsoft", **attributes),
        NODE("DequantizeLinear", ["r", "fine", "zero"], ["y"]) if "real" not in extra else NODE("Relu", ["r"], ["y"]),
    ]
    extra = [name for name in extra if name != "real"]
    nodes[1].input[:] = [*given, *extra]
    return model_of(nodes, {"x": (4, 12)}, ["y"], constants=constants, opset=21, domains=["com.microsoft"])


@pytest.mark.parametrize(
    "model",
    [
        one_operator("QGemm", ["b", "halves", "nones", "c", "scale", "zero"], transB=1, alpha=0.5),
        one_operator("QGemm", ["b", "scale", "none", "", "scale", "zero"]),
        one_operator("QGemm", ["b", "scale", "none", "c", "real"], alpha=2.0),
        one_operator("QLinearSigmoid", ["scale", "zero"]),
        one_operator("QLinearSoftmax", ["scale", "zero"], axis=-1, opset=13),
    ],
    ids=["by column", "without bias", "real numbers", "sigmoid", "softmax"],
)
def test_operators_of_onnxruntime(model: onnx.ModelProto, tmp_path: Path) -> None:
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["passed"]
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (one_operator("QLinearSigmoid", ["x", "zero"]), "its scales depend on data"),
        (one_operator("QLinearSigmoid", ["scale", "q"]), "its zero points depend on data"),
        (one_operator("QLinearSigmoid", ["scale", "zero"], scale=-1.0), "not all finite and above 0"),
        (one_operator("QLinearSoftmax", ["scale", "zero"], axis=0, opset=12), "a softmax over several axes"),
        (one_operator("QLinearConcat", ["scale", "zero", "q", "scale"]), "three for each tensor"),
        (one_operator("QGemm", ["b", "scale", "none", "", "scale", "zero"], alpha=-1.0), "alpha is -1.0"),
    ],
)
def test_refused(model: onnx.ModelProto, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved(model, tmp_path))


@pytest.mark.parametrize(("kind", "shape", "axis"), [("Conv", (8, 8, 1, 1), 1), ("MatMul", (8, 8), 0)])
def test_scales_along_input_channels(kind: str, shape: tuple[int, ...], axis: int, tmp_path: Path) -> None:
    """Scales that do not lie along output channels are no factors of sums, though there may be as many."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.integers(-127, 128, shape).astype(np.int8), "scales": np.exp2(random.uniform(-9, -4, 8)),
        "nones": np.zeros(8, np.int8), "scale": np.array(0.05, np.float32), "zero": np.array(3, np.int8),
    }  # fmt: skip
    constants["scales"] = constants["scales"].astype(np.float32)
    nodes = [
        NODE("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        NODE("DequantizeLinear", ["q", "scale", "zero"], ["real"]),
        NODE("DequantizeLinear", ["w", "scales", "nones"], ["weights"], axis=axis),
        NODE(kind, ["real", "weights"], ["sums"]),
        NODE("QuantizeLinear", ["sums", "scale", "zero"], ["rounded"]),
        NODE("DequantizeLinear", ["rounded", "scale", "zero"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, 8, 4, 4) if kind == "Conv" else (4, 8)}, ["y"], constants=constants)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert package.report["verify"]["host"]["passed"]
    assert "generic" in {step["kernel"] for step in package.report["steps"]}


@pytest.mark.parametrize("by_channel", [False, pytest.param(True, marks=pytest.mark.sweep)])
def test_scales_at_run_time(by_channel: bool, tmp_path: Path) -> None:
    """quantize_dynamic's file: each activation quantized as its own values say, as onnxruntime does it."""
    plain, dynamic = saved(network(), tmp_path), tmp_path / "dynamic.onnx"
    tools.quantize_dynamic(plain, dynamic, weight_type=tools.QuantType.QInt8, per_channel=by_channel)
    operators = {node.op_type for node in onnx.load(dynamic).graph.node}
    assert {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"} <= operators
    package = tvm_ext.build(tvm_ext.load(dynamic), "host", tmp_path / "out", HOST_ONLY)
    verified = package.report["verify"]["host"]
    assert verified["passed"] and verified["reference"] == "onnxruntime" and verified["tensors_compared"] > 5
    products = {step["kernel"] for step in package.report["steps"] if step.get("macs")}
    assert products == {"qconv2d_pairs_i8_real", "qdepthwise_i8_real", "qdense_i8_real"}
