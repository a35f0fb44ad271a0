"""Integer kernels within one step of onnxruntime on QDQ models of one operator, its graph optimisation off."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.requantize import quantization, scale_of
from codegen_c.operators.kinds import (
    Operator,
    QBinary,
    QConv2d,
    QDense,
    QPool2d,
    QSoftmax,
    Quantization,
    QUnary,
    TensorType,
    Window,
)
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tests.kernels.harness import HOST
from tests.kernels.quantized import elements, limits

Arrays = list[np.ndarray]
TYPES = [("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8")]


def tensor(shape: tuple[int, ...], dtype: str, scale: float, offset: int) -> TensorType:
    """offset: of the zero point from the middle of the type."""
    middle = 0 if dtype == "int8" else 128
    return TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=scale, zero_point=middle + offset))


def run_onnx(operator: Operator, op_type: str, inputs: Arrays, weights: Arrays, attributes: dict[str, Any]) -> Any:
    """Result of onnxruntime. inputs: NHWC where of rank 4; weights: float32, as the ONNX operator has them."""
    nodes, initializers, values = [], [], []
    names: list[str] = []
    for index, t in enumerate(operator.inputs):
        values.append(_value(t, f"x{index}"))
        initializers += _pair(t, f"x{index}")
        nodes.append(_node("DequantizeLinear", [f"x{index}", f"x{index}_scale", f"x{index}_zero"], f"x{index}_real"))
        names.append(f"x{index}_real")
    for index, weight in enumerate(weights):
        initializers.append(numpy_helper.from_array(weight.astype(np.float32), f"w{index}"))
        names.append(f"w{index}")
    nodes.append(helper.make_node(op_type, names, ["y_real"], **attributes))
    nodes.append(_node("QuantizeLinear", ["y_real", "y_scale", "y_zero"], "y"))
    initializers += _pair(operator.output, "y")
    model = helper.make_model(
        helper.make_graph(nodes, "one", values, [_value(operator.output, "y")], initializers),
        opset_imports=[helper.make_opsetid("", 19)],
        ir_version=9,
    )
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {f"x{i}": x.transpose(0, 3, 1, 2) if x.ndim == 4 else x for i, x in enumerate(inputs)}
    y = np.asarray(session.run(None, feeds)[0])
    return y.transpose(0, 2, 3, 1) if y.ndim == 4 else y


def _value(t: TensorType, name: str) -> onnx.ValueInfoProto:
    """Shape as ONNX has it: channels before rows and columns."""
    shape = tuple(t.shape[i] for i in (0, 3, 1, 2)) if len(t.shape) == 4 else t.shape
    return helper.make_tensor_value_info(name, TensorProto.INT8 if t.dtype == "int8" else TensorProto.UINT8, shape)


def _pair(t: TensorType, name: str) -> list[onnx.TensorProto]:
    zero = np.array(quantization(t).zero_point, dtype=t.dtype)
    return [
        numpy_helper.from_array(np.array(scale_of(t), np.float32), f"{name}_scale"),
        numpy_helper.from_array(zero, f"{name}_zero"),
    ]


def _node(op_type: str, inputs: list[str], output: str) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output])


def assert_close(operator: Operator, op_type: str, weights: Arrays | None = None, **attributes: Any) -> None:
    inputs = [elements(t, 11 + i) for i, t in enumerate(operator.inputs)]
    implementation = select(operator, HOST)
    assert isinstance(implementation, Implementation), implementation
    (ours,) = implementation.reference(inputs)
    theirs = run_onnx(operator, op_type, inputs, weights or [], attributes)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    off = np.abs(ours.astype(int) - theirs.astype(int))
    assert off.max() <= 1
    # More than rounding would show in more than a few elements.
    assert (off > 0).mean() <= 0.02
    assert len(np.unique(ours)) > 3


@pytest.mark.parametrize(("source", "output"), TYPES)
@pytest.mark.parametrize(
    ("window", "groups"),
    [
        (Window(kernel=(3, 3), padding=(1, 1, 1, 1)), 1),
        (Window(kernel=(3, 3), padding=(0, 0, 1, 1), strides=(2, 2)), 1),
        (Window(kernel=(1, 1)), 1),
        (Window(kernel=(3, 2), padding=(2, 1, 2, 1), dilation=(2, 2)), 2),
        (Window(kernel=(3, 3), padding=(1, 1, 1, 1)), 8),
    ],
)
def test_conv(source: str, output: str, window: Window, groups: int) -> None:
    random = np.random.default_rng(5)
    reach = [(k - 1) * d + 1 for k, d in zip(window.kernel, window.dilation, strict=True)]
    size = [(9 + window.padding[a] + window.padding[a + 2] - reach[a]) // window.strides[a] + 1 for a in (0, 1)]
    weight = random.integers(-127, 128, (8, *window.kernel, 8 // groups)).astype(np.int8)
    weight_scale = random.uniform(0.001, 0.01, 8).astype(np.float32)
    operator = QConv2d(
        inputs=(tensor((1, 9, 9, 8), source, 0.05, 17),),
        outputs=(tensor((1, size[0], size[1], 8), output, 0.08, -30),),
        weight=weight,
        weight_scale=weight_scale,
        bias=random.integers(-3000, 3000, 8).astype(np.int32),
        window=window,
        low=-128 if output == "int8" else 0,
        high=127 if output == "int8" else 255,
        groups=groups,
    )
    real = (weight * weight_scale[:, None, None, None]).transpose(0, 3, 1, 2)
    bias = operator.bias * np.float32(0.05) * weight_scale
    assert_close(
        operator,
        "Conv",
        [real, bias],
        kernel_shape=window.kernel,
        strides=window.strides,
        pads=window.padding,
        dilations=window.dilation,
        group=groups,
    )


@pytest.mark.parametrize(("source", "output"), TYPES)
def test_gemm(source: str, output: str) -> None:
    random = np.random.default_rng(5)
    weight = random.integers(-127, 128, (37, 64)).astype(np.int8)
    weight_scale = random.uniform(0.001, 0.01, 37).astype(np.float32)
    out = tensor((4, 37), output, 0.1, 9)
    low, high = limits(out)
    operator = QDense(
        inputs=(tensor((4, 64), source, 0.05, -21),),
        outputs=(out,),
        weight=weight,
        weight_scale=weight_scale,
        bias=random.integers(-3000, 3000, 37).astype(np.int32),
        low=low,
        high=high,
    )
    bias = operator.bias * np.float32(0.05) * weight_scale
    assert_close(operator, "Gemm", [weight * weight_scale[:, None], bias], transB=1)


@pytest.mark.parametrize(("source", "output"), TYPES)
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 2, 0)])
def test_average_pool(source: str, output: str, include: int, padding: tuple[int, int, int, int]) -> None:
    window = Window(kernel=(3, 3), strides=(2, 2), padding=padding)
    size = [(11 + padding[a] + padding[a + 2] - 3) // 2 + 1 for a in (0, 1)]
    out = tensor((1, size[0], size[1], 5), output, 0.03, 9)
    low, high = limits(out)
    operator = QPool2d(
        inputs=(tensor((1, 11, 11, 5), source, 0.05, -21),),
        outputs=(out,),
        method="average",
        window=window,
        low=low,
        high=high,
        count_include_pad=bool(include),
    )
    shared = {"kernel_shape": window.kernel, "strides": window.strides, "pads": padding}
    assert_close(operator, "AveragePool", count_include_pad=include, **shared)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pool(dtype: str) -> None:
    window = Window(kernel=(3, 2), strides=(2, 1), padding=(1, 0, 1, 1), dilation=(1, 1))
    source, out = tensor((1, 11, 11, 5), dtype, 0.05, -21), tensor((1, 6, 11, 5), dtype, 0.05, -21)
    low, high = limits(out)
    operator = QPool2d(inputs=(source,), outputs=(out,), method="max", window=window, low=low, high=high)
    assert_close(operator, "MaxPool", kernel_shape=window.kernel, strides=window.strides, pads=window.padding)


@pytest.mark.parametrize(("source", "output"), TYPES)
@pytest.mark.parametrize(("function", "scale"), [("add", 0.083), ("subtract", 0.083), ("multiply", 0.21)])
def test_binary(source: str, output: str, function: Any, scale: float) -> None:
    shape = (1, 9, 7, 6)
    out = tensor(shape, output, scale, -7)
    low, high = limits(out)
    operands = (tensor(shape, source, 0.037, 12), tensor(shape, "int8", 0.059, -3))
    operator = QBinary(inputs=operands, outputs=(out,), function=function, low=low, high=high)
    assert_close(operator, {"add": "Add", "subtract": "Sub", "multiply": "Mul"}[function])


@pytest.mark.parametrize(("source", "output"), TYPES)
@pytest.mark.parametrize(("function", "op_type"), [("sigmoid", "Sigmoid"), ("tanh", "Tanh"), ("abs", "Abs")])
def test_unary(source: str, output: str, function: str, op_type: str) -> None:
    shape = (1, 9, 7, 6)
    program = ScalarProgram(instructions=(Instruction(function=function, operands=(Operand(kind="value"),)),))
    out = tensor(shape, output, 0.008, -20)
    assert_close(QUnary(inputs=(tensor(shape, source, 0.03, 5),), outputs=(out,), finish=program), op_type)


@pytest.mark.parametrize(("source", "output"), TYPES)
@pytest.mark.parametrize("length", [3, 10, 1001])
@pytest.mark.parametrize("scale", [0.01, 0.15])
def test_softmax(source: str, output: str, length: int, scale: float) -> None:
    shape = (8, length)
    # One step is a 256th of what the largest probability may be: long rows get finer steps.
    out = tensor(shape, output, 1 / 256 if length < 100 else 1 / 16384, -128)
    assert_close(QSoftmax(inputs=(tensor(shape, source, scale, 5),), outputs=(out,)), "Softmax", axis=-1)
