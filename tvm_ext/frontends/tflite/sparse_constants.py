"""Constants of a TensorFlow Lite file that are stored sparse and read by DENSIFY: the dense array stands in the graph.

A sparse constant lists its levels in `traversal_order`: first the axes of the tensor, then the axes of its blocks, each
dense (all indices, stored or not) or compressed (`array_segments` and `array_indices`, as the rows of a CSR matrix).
An axis with blocks has its extent divided by the block's. The elements are in the order of the levels. Elements that
are not stored are 0, as `FormatConverter` of TensorFlow Lite leaves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import flatbuffers.table
import numpy as np
import tflite

from tvm_ext.core.errors import BadModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.tflite.read_file import DAMAGE, FileSizes, TfliteFile, TfliteGraph, TfliteTensor, is_packed

_OPERATOR = "DENSIFY"
_INDEX_TABLES: dict[int, Any] = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}

Graph = TypeVar("Graph", bound=TfliteGraph)


def constants_densified(path: Path, file: TfliteFile, limits: Limits) -> TfliteFile:
    """Return the file with the dense array in place of each DENSIFY of a sparse constant.

    Raises BadModel for indices outside of the constant, and UnsupportedModel for an array above the limits.
    """
    sizes = FileSizes(path, limits)
    sizes.weights_bytes = file.weights_bytes

    def densified(graph: Graph, index: int) -> Graph:
        return _densified(path, file.model, graph, index, sizes)

    called = {index: densified(graph, index) for index, graph in file.called.items()}
    return replace(densified(file, file.main), called=called, weights_bytes=sizes.weights_bytes)


def _densified(path: Path, model: tflite.Model, graph: Graph, index: int, sizes: FileSizes) -> Graph:
    """Return a subgraph, `index` of the model, without the DENSIFY operators of its sparse constants."""
    tensors, nodes = list(graph.tensors), []
    for node in graph.nodes:
        source = node.inputs[0] if len(node.inputs) == len(node.outputs) == 1 else -1
        if node.operator != _OPERATOR or source < 0 or not tensors[source].is_sparse:
            nodes.append(node)
            continue
        try:
            dense = _dense(model, tensors[source], model.Subgraphs(index).Tensors(source), sizes)
        except DAMAGE as error:
            raise BadModel(f"{path}: the sparse tensor {tensors[source].name!r} is damaged: {error}.") from None
        result = tensors[node.outputs[0]]
        if dense is None or (result.dtype, result.shape) != (str(dense.dtype), dense.shape):
            nodes.append(node)  # the check of operators refuses it
        else:
            tensors[node.outputs[0]] = replace(result, data=dense, dims=dense.shape)
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def _dense(model: tflite.Model, tensor: TfliteTensor, table: tflite.Tensor, sizes: FileSizes) -> np.ndarray | None:
    """Return the dense array of a sparse tensor; None for an element type that is not compiled."""
    if tensor.dtype is None or is_packed(model, table):
        return None
    dtype = np.dtype(tensor.dtype)
    sizes.check_constant(tensor.name, tensor.shape, prod(tensor.shape) * dtype.itemsize)
    raw = model.Buffers(table.Buffer()).DataAsNumpy()
    raw = raw if isinstance(raw, np.ndarray) else np.empty(0, np.uint8)
    if len(raw) % dtype.itemsize:
        raise ValueError(f"its buffer of {len(raw)} B holds no whole number of {dtype}")
    stored = np.frombuffer(raw.tobytes(), dtype.newbyteorder("<")).astype(dtype, copy=False)
    dense = np.zeros(tensor.shape, dtype)
    dense[_coordinates(table.Sparsity(), tensor.shape, len(stored))] = stored
    return dense


def _coordinates(sparsity: tflite.SparsityParameters, shape: Sequence[int], num_stored: int) -> tuple[np.ndarray, ...]:
    """Return the indices of the stored elements, an array for each axis. Raises ValueError for impossible levels."""
    order, blocked = _numbers(sparsity.TraversalOrderAsNumpy()), _numbers(sparsity.BlockMapAsNumpy())
    rank, num_levels = len(shape), len(shape) + len(blocked)
    if sorted(order) != [*range(num_levels)] or sparsity.DimMetadataLength() != num_levels:
        raise ValueError(f"{num_levels} levels are needed, for {rank} axes and {len(blocked)} axes of blocks")
    if any(not 0 <= axis < rank for axis in blocked) or any(level < rank for level in order[rank:]):
        raise ValueError("its blocks are of unknown axes, or come before other axes")
    levels = [sparsity.DimMetadata(level) for level in range(num_levels)]
    entries = np.zeros(1, np.int64)
    columns: list[np.ndarray] = []
    for level in levels:
        repeats, found = _entries(level, entries, prod(shape))
        columns = [np.repeat(column, repeats) for column in columns]
        if level.Format() == tflite.DimensionType.DENSE:
            columns.append(np.tile(np.arange(level.DenseSize()), len(entries)))
        else:
            columns.append(_vector(level.ArrayIndicesType(), level.ArrayIndices())[found])
        entries = found
    if len(entries) != num_stored:
        raise ValueError(f"its levels have {len(entries)} elements, its buffer {num_stored}")
    places = [np.zeros(len(entries), np.int64) for _ in shape]
    for level, axis, column in zip(levels, order, columns, strict=True):
        if axis < rank:
            places[axis] = column
        else:
            places[blocked[axis - rank]] = places[blocked[axis - rank]] * level.DenseSize() + column
    for place, extent in zip(places, shape, strict=True):
        if place.size and not 0 <= place.min() <= place.max() < extent:
            raise ValueError(f"it has an index {place.max()} on an axis of {extent}")
    return tuple(places)


def _entries(level: tflite.DimensionMetadata, above: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how often each entry of the level above is repeated, and the entries of this level.

    most: the elements of the dense tensor, above which no level has entries.
    """
    if level.Format() == tflite.DimensionType.DENSE:
        size = level.DenseSize()
        if size < 0 or len(above) * size > most:
            raise ValueError(f"a level has {len(above)} times {size} entries, the tensor {most} elements")
        return np.full(len(above), size), (above[:, np.newaxis] * size + np.arange(size)).reshape(-1)
    segments = _vector(level.ArraySegmentsType(), level.ArraySegments())
    counts = segments[above + 1] - segments[above]
    if counts.size and (counts.min() < 0 or counts.sum() > most):
        raise ValueError(f"a level has segments of {counts.min()} to {counts.max()} entries")
    ahead = np.cumsum(counts) - counts
    return counts, np.repeat(segments[above] - ahead, counts) + np.arange(counts.sum())


def _vector(kind: int, union: flatbuffers.table.Table | None) -> np.ndarray:
    """Return a vector of segments or indices as int64. Raises ValueError for an unknown type."""
    if kind not in _INDEX_TABLES or union is None:
        raise ValueError("a level has no segments or indices")
    table = _INDEX_TABLES[kind]()
    table.Init(union.Bytes, union.Pos)
    values = table.ValuesAsNumpy()
    return values.astype(np.int64) if isinstance(values, np.ndarray) else np.empty(0, np.int64)


def _numbers(array: np.ndarray | int) -> list[int]:
    """Return a vector of the file. The flatbuffers library returns 0 for a missing vector."""
    return [int(number) for number in array] if isinstance(array, np.ndarray) else []
