"""Random int8 models in QDQ form: a random float model, every value between two nodes quantized."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvm_ext.verification.input_ranges import random_inputs
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

_WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "Gemm": None, "MatMul": None}
"""Operators with weights, and the axis with a scale for each index, where there may be one."""


def quantized(model: onnx.ModelProto, seed: int) -> onnx.ModelProto | None:
    """The model in QDQ form, with ranges of one random input; None where that gives what has no range."""
    random = np.random.default_rng(seed)
    values = _values(model)
    if values is None:
        return None
    keep_float_ports = random.random() < 0.4
    dtype = np.int8 if random.random() < 0.8 else np.uint8
    per_channel = random.random() < 0.6
    graph = model.graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    parameters = {name: _parameters(value, dtype) for name, value in values.items() if value.dtype == np.float32}
    outputs = {output.name for output in graph.output}
    inputs = {value.name for value in graph.input}
    nodes: list[onnx.NodeProto] = []
    new: dict[str, np.ndarray] = {}

    def dequantized(name: str, axis: int | None) -> str:
        """Name that a node reads in place of a value: the value through quantization."""
        if name in constants and constants[name].dtype != np.float32:
            return name
        if name in constants:
            return _weight(name, constants[name], axis if per_channel else None, nodes, new)
        return f"{name}.dq"

    def quantize(name: str) -> None:
        scale, zero = parameters[name]
        new[f"{name}.scale"], new[f"{name}.zero"] = np.float32(scale), dtype(zero)
        ends = [f"{name}.scale", f"{name}.zero"]
        source, stored, real = name, f"{name}.q", f"{name}.dq"
        if not keep_float_ports:
            stored = name if name in inputs or name in outputs else stored
            source = f"{name}.f"
        if keep_float_ports or name not in inputs:
            nodes.append(helper.make_node("QuantizeLinear", [source, *ends], [stored]))
        nodes.append(helper.make_node("DequantizeLinear", [stored, *ends], [real]))

    for name in inputs:
        if name in parameters:
            quantize(name)
    for node in graph.node:
        axis = _WEIGHTED.get(node.op_type)
        read = [
            dequantized(name, axis if index == 1 else None)
            if name in parameters or (index < 3 and name in constants and _is_weight(node, index))
            else name
            for index, name in enumerate(node.input)
        ]
        made = [f"{name}.f" if not keep_float_ports and name in parameters else name for name in node.output]
        again = onnx.NodeProto()
        again.CopyFrom(node)
        again.input[:], again.output[:] = read, made
        nodes.append(again)
        for name in node.output:
            if name in parameters:
                quantize(name)
    return _finished(model, nodes, {**constants, **new}, dtype if not keep_float_ports else None, parameters)


def _is_weight(node: onnx.NodeProto, index: int) -> bool:
    binary = node.op_type in ("Add", "Mul", "Sub", "Div", "Max", "Min")
    return index in (0, 1) and (node.op_type in _WEIGHTED or binary)


def _weight(
    name: str, value: np.ndarray, axis: int | None, nodes: list[onnx.NodeProto], new: dict[str, np.ndarray]
) -> str:
    if f"{name}.w" not in new:
        axis = axis if value.ndim > 1 else None
        others = tuple(i for i in range(value.ndim) if i != axis) if axis is not None else None
        scale = np.maximum(np.abs(value).max(axis=others), 1e-6).astype(np.float32) / np.float32(127)
        shaped = scale.reshape([-1 if i == axis else 1 for i in range(value.ndim)]) if axis is not None else scale
        new[f"{name}.w"] = np.clip(np.round(value / shaped), -127, 127).astype(np.int8)
        new[f"{name}.scale"], new[f"{name}.zero"] = scale, np.zeros(scale.shape, np.int8)
        given = {"axis": axis} if axis is not None else {}
        nodes.append(
            helper.make_node(
                "DequantizeLinear", [f"{name}.w", f"{name}.scale", f"{name}.zero"], [f"{name}.dq"], **given
            )
        )
    return f"{name}.dq"


def _parameters(value: np.ndarray, dtype: type) -> tuple[float, int]:
    info = np.iinfo(dtype)
    low, high = min(float(value.min(initial=0)), 0.0), max(float(value.max(initial=0)), 0.0)
    scale = max((high - low) / 255, 1e-4)
    return scale, int(np.clip(round(info.min - low / scale), info.min, info.max))


def _values(model: onnx.ModelProto) -> dict[str, np.ndarray] | None:
    """Every value for one random input."""
    specs = {
        value.name: (tuple(d.dim_value for d in value.type.tensor_type.shape.dim), "float32")
        for value in model.graph.input
    }
    inputs = random_inputs(specs, 1)
    inner = [name for node in model.graph.node for name in node.output]
    try:
        (found,) = onnx_outputs(model, [inputs], inner)
    except Exception:  # what onnxruntime has no kernel for
        return None
    found = inputs | found
    return found if all(np.isfinite(v).all() and np.abs(v).max(initial=0) < 1e6 for v in found.values()) else None


def _finished(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], dtype: type | None,
    parameters: dict[str, tuple[float, int]],
) -> onnx.ModelProto:  # fmt: skip
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    used = {name for node in nodes for name in node.input} | {output.name for output in graph.output}
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items() if name in used
    )
    if dtype is not None:
        for value in (*graph.input, *graph.output):
            if value.name in parameters:
                kind = TensorProto.INT8 if dtype is np.int8 else TensorProto.UINT8
                value.type.tensor_type.elem_type = kind
    return result
