"""Converters of PyTorch's operators that write to positions, or view memory by strides.

A position that an index tensor names may be negative, and then counts from the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.pytorch.operators import Converter, arguments_of, from_zero, in_type
from tvm_ext.frontends.refusals import Refused


def _index_put(node: Any, importer: Any) -> relax.Expr:
    """Convert writes of values to the positions that index tensors name, or that a mask selects."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    values, adds = importer.env[given["values"]], bool(given.get("accumulate", False))
    axes = [axis for axis, index in enumerate(given["indices"]) if index is not None]
    tensors = [importer.env[given["indices"][axis]] for axis in axes]
    if [str(tensor.ty.dtype) for tensor in tensors] == ["bool"]:
        return _masked(importer, x, tensors[0], axes[0], values, adds)
    shape, rank = static_shape(x), len(static_shape(x))
    others = [axis for axis in range(rank) if axis not in axes]
    order = [*axes, *others]
    indices = [from_zero(importer, tensor, shape[axis]) for axis, tensor in zip(axes, tensors, strict=True)]
    picked = np.broadcast_shapes(*(static_shape(index) for index in indices))
    columns = [
        emit(relax.op.reshape(emit(relax.op.broadcast_to(in_type(emit, index, "int64"), picked)), [*picked, 1]))
        for index in indices
    ]
    places = emit(relax.op.concat(columns, axis=len(picked))) if len(columns) > 1 else columns[0]
    written = _values_ahead(importer, values, shape, axes, picked)
    ahead = x if order == list(range(rank)) else emit(relax.op.permute_dims(x, order))
    found = emit(relax.op.scatter_nd(ahead, places, written, "add" if adds else "update"))
    return found if ahead is x else emit(relax.op.permute_dims(found, [order.index(axis) for axis in range(rank)]))


def _values_ahead(
    importer: Any, values: relax.Expr, shape: tuple[int, ...], axes: list[int], picked: tuple[int, ...]
) -> relax.Expr:
    """Return values in the shape of what is written: axes of the index tensors, then axes that have none.

    torch reads them in the shape of `x[indices]`, in which adjacent indexed axes keep their position.
    """
    emit = importer.block_builder.emit
    others = [extent for axis, extent in enumerate(shape) if axis not in axes]
    is_together = axes == list(range(axes[0], axes[0] + len(axes)))
    num_before = axes[0] if is_together else 0
    whole = [*others[:num_before], *picked, *others[num_before:]]
    values = values if static_shape(values) == tuple(whole) else emit(relax.op.broadcast_to(values, whole))
    if not num_before:
        return values
    moved = [*range(num_before, num_before + len(picked)), *range(num_before)]
    return emit(relax.op.permute_dims(values, [*moved, *range(num_before + len(picked), len(whole))]))


def _masked(
    importer: Any, x: relax.Expr, mask: relax.Expr, axis: int, values: relax.Expr, adds: bool
) -> relax.Expr:  # fmt: skip
    """Return x with a single value where the mask is set."""
    if math.prod(static_shape(values)) != 1:
        raise Refused(
            "values that a mask distributes, so that data decide which value is written where; use torch.where"
        )
    emit, rank = importer.block_builder.emit, len(static_shape(x))
    extents = static_shape(mask)
    fitting = emit(relax.op.reshape(mask, [*extents, *(1,) * (rank - axis - len(extents))]))
    value = emit(relax.op.reshape(values, ()))
    return emit(relax.op.where(fitting, emit(relax.op.add(x, value)) if adds else value, x))


def _view_by_strides(node: Any, importer: Any) -> relax.Expr:
    """Convert a view of a contiguous tensor by sizes and strides."""
    given, emit = arguments_of(node), importer.block_builder.emit
    source = given["self"].meta["val"]
    if not source.is_contiguous() or int(source.storage_offset()) != 0:
        raise Refused("as_strided of a tensor that is itself a view; copy it first (contiguous)")
    places = np.asarray(given.get("storage_offset") or 0, np.int64)
    for size, stride in zip(given["size"], given["stride"], strict=True):
        places = places[..., np.newaxis] + np.arange(int(size)) * int(stride)
    flat = emit(relax.op.reshape(importer.env[given["self"]], (-1,)))
    return emit(relax.op.take(flat, constant(places), 0))


def _insertion_places(node: Any, importer: Any) -> relax.Expr:
    """Convert the positions at which numbers would be inserted in one ordered row of numbers."""
    given, emit = arguments_of(node), importer.block_builder.emit
    row, values = importer.env[given["sorted_sequence"]], importer.env[given["self"]]
    if len(static_shape(row)) != 1 or given.get("sorter") is not None:
        raise Refused(f"searchsorted in {list(static_shape(row))}; search one ordered row of numbers")
    is_right = bool(given.get("right", False)) or given.get("side") == "right"
    return emit(relax.op.bucketize(values, row, bool(given.get("out_int32", False)), is_right))


_REDUCTIONS = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
"""Relax's name of a reduction by torch's."""


def _scattered(node: Any, importer: Any) -> relax.Expr:
    """Convert a scatter that combines all elements that have one index with the element that is there."""
    given, emit = arguments_of(node), importer.block_builder.emit
    reduction = given.get("reduce", "sum")
    dtype = str(importer.env[given["self"]].ty.dtype)
    if not given.get("include_self", True) or (reduction == "mean" and not dtype.startswith("float")):
        raise Refused(f"scatter_reduce of {dtype} by {reduction}, include_self {given.get('include_self', True)}")
    x, index, source = (importer.env[given[name]] for name in ("self", "index", "src"))
    extents = static_shape(index)
    if static_shape(source) != extents:  # elements of the source beyond those of the index count for nothing
        axes = list(range(len(extents)))
        source = emit(relax.op.strided_slice(source, axes, [0] * len(axes), list(extents)))
    found = emit(relax.op.scatter_elements(x, index, source, given["dim"], _REDUCTIONS[reduction]))
    if reduction != "mean":
        return found
    ones = [constant(np.ones(static_shape(value), dtype)) for value in (x, source)]
    counts = emit(relax.op.scatter_elements(ones[0], index, ones[1], given["dim"], "add"))
    return emit(relax.op.divide(found, counts))


CONVERTERS: dict[str, Converter] = {
    "index_put.default": _index_put,
    "index_put_.default": _index_put,
    "as_strided.default": _view_by_strides,
    "searchsorted.Tensor": _insertion_places,
    "scatter_add.default": _scattered,
    "scatter_reduce.two": _scattered,
}
"""Converters for TVM's importer, by operator."""
