"""Values that a graph begins with: its inputs as parameters, its initializers as constants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import numpy_helper
from tvm import relax

from relay_passes.dataflow import constant
from tvm_ext.core.errors import BadModel
from tvm_ext.frontends.onnx.element_types import dtype_of, not_supported
from tvm_ext.frontends.onnx.refusals import WAY_OUT
from tvm_ext.frontends.onnx.sub_byte import in_bytes
from tvm_ext.frontends.refusals import RefusedNode, unsupported


def parameter(path: Path, value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> relax.Var:
    """An input under its own name. Raises UnsupportedModel for an element type that cannot be compiled."""
    dtype = dtype_of(value.type.tensor_type.elem_type)
    if dtype is None:
        reason = not_supported(value.type.tensor_type.elem_type)
        raise unsupported(path, [RefusedNode(operator="graph input", node=value.name, reason=reason)], way_out=WAY_OUT)
    return relax.Var(value.name, relax.TensorType(shape, dtype))


def initializers(path: Path, graph: onnx.GraphProto) -> Iterator[tuple[str, relax.Expr | RefusedNode]]:
    """Name of each initializer, and the constant that it is, or why there is none. Raises BadModel."""
    for tensor in graph.initializer:
        if dtype_of(tensor.data_type) is None:
            reason = not_supported(tensor.data_type)
            yield tensor.name, RefusedNode(operator="initializer", node=tensor.name, reason=reason)
            continue
        try:
            yield tensor.name, constant(in_bytes(numpy_helper.to_array(tensor)))
        except (ValueError, TypeError, RuntimeError) as error:
            raise BadModel(f"{path}: initializer {tensor.name!r} is broken: {error}") from None
    for sparse in graph.sparse_initializer:
        name, reason = sparse.values.name, "store the weights densely"
        yield name, RefusedNode(operator="sparse initializer", node=name, reason=reason)
