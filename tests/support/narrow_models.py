"""ONNX models of float32 with all their tensors in 16 bits, as converters to float16 write them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NUMPY = {TensorProto.FLOAT16: np.dtype(np.float16), TensorProto.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}
BFLOAT16_OPSET = 22
"""The first one whose convolutions take bfloat16."""


def narrowed(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """A copy with weights and activations of `kind`; its inputs and outputs stay float32, casts beside them."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value.name for value in graph.input if value.name not in weights]
    outputs = [value.name for value in graph.output]
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(NUMPY[kind]), tensor.name))
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{name}_narrow" if name in (*inputs, *outputs) else name for name in names]
    before = [helper.make_node("Cast", [name], [f"{name}_narrow"], to=kind) for name in inputs]
    behind = [helper.make_node("Cast", [f"{name}_narrow"], [name], to=TensorProto.FLOAT) for name in outputs]
    nodes = [*before, *graph.node, *behind]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    if kind == TensorProto.BFLOAT16:
        for opset in found.opset_import:
            opset.version = max(opset.version, BFLOAT16_OPSET)
    return found
