"""A float network as int8 in QDQ form, quantized by onnxruntime: weights per channel, activations per tensor."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

NUM_CALIBRATION_SAMPLES = 4


class _NormalInputs(CalibrationDataReader):
    """The same few normally distributed samples for `input` each time."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(0)
        self._left = [random.standard_normal(shape).astype(np.float32) for _ in range(NUM_CALIBRATION_SAMPLES)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return {"input": self._left.pop()} if self._left else None


def quantized(model: onnx.ModelProto, *, activations: QuantType = QuantType.QInt8) -> onnx.ModelProto:
    """The same network with int8 weights (symmetric), and activations, input and output of one type of 8 bits.

    Ranges are the least and greatest values that a few random inputs give.
    """
    shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim)
    with tempfile.TemporaryDirectory(prefix="tvm_ext_zoo_") as folder:
        float_path, path = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        quant_pre_process(model, float_path, skip_optimization=True, skip_symbolic_shape=True)
        quantize_static(
            float_path, path, _NormalInputs(shape), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=activations, weight_type=QuantType.QInt8,
            extra_options={"WeightSymmetric": True, "ActivationSymmetric": False},
        )  # fmt: skip
        result = onnx.load(path)
    return _integer_ports(result, activations)


def _integer_ports(model: onnx.ModelProto, activations: QuantType) -> onnx.ModelProto:
    """The quantizer keeps float ports; their QuantizeLinear and DequantizeLinear go, and the ports become integers.

    A Transpose that stands before the QuantizeLinear moves these then.
    """
    graph = model.graph
    del graph.value_info[:]
    first = _reader(graph, "input")
    if first.op_type == "Transpose":
        first = _reader(graph, first.output[0])
    (last,) = [node for node in graph.node if "output" in node.output]
    if first.op_type != "QuantizeLinear" or last.op_type != "DequantizeLinear":
        raise ValueError(f"{graph.name}: begins with {first.op_type} and ends with {last.op_type}, not Q and DQ.")
    renamed = {first.output[0]: first.input[0], last.input[0]: "output"}
    graph.node.remove(first)
    graph.node.remove(last)
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for port in (graph.input[0], graph.output[0]):
        port.type.tensor_type.elem_type = activations.tensor_type
    onnx.checker.check_model(model, full_check=True)
    return model


def _reader(graph: onnx.GraphProto, name: str) -> onnx.NodeProto:
    (node,) = [node for node in graph.node if name in node.input]
    return node
