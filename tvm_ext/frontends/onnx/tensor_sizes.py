"""Bytes of the tensors in an ONNX file, by their dimensions, before any of them is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import onnx

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.onnx.walk_nodes import graphs_of, nodes_of

_FOUR_BIT = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1)


def check_tensors(path: Path, model: onnx.ModelProto, limits: Limits) -> int:
    """Bytes of all tensors of a file together; each of them, and their sum, within the limits.

    Raises UnsupportedModel, and BadModel for dimensions that are negative or of tensors of unknown types.
    """
    total = 0
    for tensor in tensors_of(model):
        where = f"{path}: tensor {tensor.name!r}"
        if min(tensor.dims, default=0) < 0:
            raise BadModel(f"{where} has a negative dimension.")
        if tensor.data_type == onnx.TensorProto.STRING or not _is_known(tensor):
            continue  # text is counted in the file, and what is unknown is refused by the checker
        reason = limits.excess_of_tensor(tensor.dims, -(-_num_bits(tensor) // 8))
        if reason:
            raise UnsupportedModel(f"{where} is too large: {reason}.")
        total += num_bytes(tensor, where)
        reason = limits.excess("weights_bytes", total)
        if reason:
            raise UnsupportedModel(f"{where} and those before it are too large: {reason}.")
    return total


def num_bytes(tensor: onnx.TensorProto, where: str) -> int:
    """Bytes of a tensor's elements. Raises BadModel where dimensions or element type give none."""
    if not _is_known(tensor):
        raise BadModel(f"{where}: element type {tensor.data_type} is unknown.")
    if tensor.data_type == onnx.TensorProto.STRING or min(tensor.dims, default=0) < 0:
        raise BadModel(f"{where}: strings and negative dimensions cannot be external.")
    return -(-math.prod(tensor.dims) * _num_bits(tensor) // 8)


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model: initializers, attributes of nodes, those of subgraphs and functions."""
    for graph in graphs_of(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes_of(model):
        for attribute in node.attribute:
            yield from [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]
            sparse_tensors = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            for sparse in [*sparse_tensors, *attribute.sparse_tensors]:
                yield from (sparse.values, sparse.indices)


def _is_known(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in onnx.TensorProto.DataType.values() and tensor.data_type != onnx.TensorProto.UNDEFINED


def _num_bits(tensor: onnx.TensorProto) -> int:
    """Bits of an element."""
    if tensor.data_type in _FOUR_BIT:
        return 4
    return onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize * 8
