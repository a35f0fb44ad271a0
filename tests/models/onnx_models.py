"""Small ONNX models for tests, from nodes and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Shape = Sequence[int | str] | None
FLOAT = TensorProto.FLOAT


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str | tuple[str, int]],
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 13,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """float32 inputs of the given shapes; outputs float32 unless given with a type, of whatever shape comes out."""
    typed = [(output, FLOAT) if isinstance(output, str) else output for output in outputs]
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in typed],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=10)


def relu_model(shape: Shape = (1, 4)) -> onnx.ModelProto:
    """x -> Relu -> y."""
    return model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": shape}, ["y"])


def saved(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    onnx.save(model, path)
    return path


def write(folder: Path, data: bytes, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path
