"""Small networks whose generated files are kept: weights are plain fractions, so that they read well."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NODE = helper.make_node


def fractions(*shape: int) -> np.ndarray:
    """-0.75, -0.5 ... 0.75 in turn."""
    return ((np.arange(int(np.prod(shape))) % 7 - 3) / 4).astype(np.float32).reshape(shape)


def model(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], outputs: list[str], constants: dict[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)


def float_network() -> onnx.ModelProto:
    """Convolution, pool, dense, softmax: kernels of our own, permutations at the border, fused bias and clamp."""
    nodes = [
        NODE("Conv", ["image:0", "w1", "b1"], ["conv1/out"], "conv1", pads=[1, 1, 1, 1]),
        NODE("Relu", ["conv1/out"], ["relu1"], "relu1"),
        NODE("MaxPool", ["relu1"], ["pool"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Flatten", ["pool"], ["flat"], "flatten"),
        NODE("Gemm", ["flat", "w2", "b2"], ["scores"], "dense", transB=1),
        NODE("Softmax", ["scores"], ["probabilities"], "softmax"),
    ]
    constants = {"w1": fractions(4, 2, 3, 3), "b1": fractions(4), "w2": fractions(3, 36), "b2": fractions(3)}
    return model(nodes, {"image:0": [1, 2, 6, 6]}, ["probabilities"], constants)


def integer_network() -> onnx.ModelProto:
    """A QDQ convolution with a residual: integers between float ends."""
    weights = (np.arange(3 * 3 * 9) % 11 - 5).astype(np.int8).reshape(3, 3, 3, 3)
    constants = {
        "scale": np.array(0.125, np.float32), "zero": np.array(3, np.int8),
        "w": weights, "w_scale": np.array([0.25, 0.5, 0.125], np.float32), "w_zero": np.zeros(3, np.int8),
    }  # fmt: skip
    quantization = ["scale", "zero"]
    nodes = [
        NODE("QuantizeLinear", ["x", *quantization], ["x_q"], "quantize"),
        NODE("DequantizeLinear", ["x_q", *quantization], ["x_d"], "dequantize"),
        NODE("DequantizeLinear", ["w", "w_scale", "w_zero"], ["w_d"], "weights", axis=0),
        NODE("Conv", ["x_d", "w_d"], ["conv_f"], "conv", pads=[1, 1, 1, 1]),
        NODE("QuantizeLinear", ["conv_f", *quantization], ["conv_q"], "conv_quantize"),
        NODE("DequantizeLinear", ["conv_q", *quantization], ["conv_d"], "conv_dequantize"),
        NODE("Add", ["conv_d", "x_d"], ["sum_f"], "residual"),
        NODE("QuantizeLinear", ["sum_f", *quantization], ["sum_q"], "sum_quantize"),
        NODE("DequantizeLinear", ["sum_q", *quantization], ["y"], "sum_dequantize"),
    ]
    return model(nodes, {"x": [1, 3, 5, 5]}, ["y"], constants)


def branching_network() -> onnx.ModelProto:
    """Two inputs, two outputs, an operator of TVM's (cumulative sum), and a result that is only another shape."""
    nodes = [
        NODE("Add", ["a", "b"], ["sum"], "add"),
        NODE("CumSum", ["sum", "axis"], ["running"], "cumsum"),
        NODE("Sigmoid", ["running"], ["gate"], "gate"),
        NODE("Mul", ["running", "gate"], ["y"], "multiply"),
        NODE("Reshape", ["sum", "shape"], ["flat"], "reshape"),
    ]
    constants = {"axis": np.array(1, np.int64), "shape": np.array([12])}
    return model(nodes, {"a": [2, 6], "b": [2, 6]}, ["y", "flat"], constants)
