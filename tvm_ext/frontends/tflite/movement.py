"""Converters of operators that move, repeat or gather elements.

The elements are the integers or real numbers of the file. Padding is the zero point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from tvm import relax, te, tirx

from relay_passes.dataflow import array_of, constant, infer, static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.layers import options_of
from tvm_ext.frontends.tflite.read_file import TfliteNode


@dataclass(frozen=True, kw_only=True)
class Moved:
    """An operator with the values of its inputs. zero: the element that represents zero."""

    table: tflite.Operator
    values: tuple[relax.Expr, ...]
    zero: int
    builder: relax.BlockBuilder

    def array(self, place: int, name: str) -> np.ndarray:
        """Return the numbers of an input. Raises Refused if the model computes them. name: for the message."""
        array = array_of(self.values[place])
        if array is None:
            raise Refused(f"its {name} depends on data")
        return array

    def options(self, kind: type) -> Any:
        return options_of(self.table, kind)


def _expand_dims(move: Moved) -> relax.Expr:
    return relax.op.expand_dims(move.values[0], int(move.array(1, "axis").reshape(())))


def _squeeze(move: Moved) -> relax.Expr:
    """Remove the axes that the options name, or all axes of extent 1 if they name none."""
    shape = static_shape(move.values[0])
    named = move.options(tflite.SqueezeOptions).SqueezeDimsAsNumpy()
    axes = {int(axis) % max(len(shape), 1) for axis in named} if isinstance(named, np.ndarray) else set()
    axes = axes or {axis for axis, extent in enumerate(shape) if extent == 1}
    if any(axis >= len(shape) or shape[axis] != 1 for axis in axes):
        raise Refused(f"it removes axes {sorted(axes)} of {list(shape)}; only axes of extent 1 can be removed")
    return relax.op.reshape(move.values[0], [extent for axis, extent in enumerate(shape) if axis not in axes])


def _fill(move: Moved) -> relax.Expr:
    shape = [int(extent) for extent in move.array(0, "shape").reshape(-1)]
    if math.prod(static_shape(move.values[1])) != 1:
        raise Refused(f"it fills with a tensor of shape {list(static_shape(move.values[1]))}, not with a number")
    return relax.op.broadcast_to(move.builder.emit(relax.op.reshape(move.values[1], ())), shape)


def _space_to_batch(move: Moved) -> relax.Expr:
    """Pad, split the axes after the batch into blocks, and move the positions within a block before the batch."""
    blocks, widths = _blocks(move), move.array(2, "padding").reshape(-1, 2).tolist()
    rest = len(static_shape(move.values[0])) - 1 - len(blocks)
    if min((min(pair) for pair in widths), default=0) < 0:
        raise Refused(f"it pads by {widths}; paddings are at least 0")
    pads = [0, 0, *(extent for pair in widths for extent in pair), *(0, 0) * rest]
    padded = move.builder.emit(relax.op.nn.pad(move.values[0], pads, pad_value=move.zero))
    batch, *extents = static_shape(padded)
    inner = extents[len(blocks) :]
    if any(extent % block for extent, block in zip(extents, blocks, strict=False)):
        raise Refused(f"its padded input {list(static_shape(padded))} does not divide into blocks of {blocks}")
    cut = [part for extent, block in zip(extents, blocks, strict=False) for part in (extent // block, block)]
    apart = move.builder.emit(relax.op.reshape(padded, (batch, *cut, *inner)))
    outer = range(1, 2 * len(blocks), 2)
    order = [*(axis + 1 for axis in outer), 0, *outer, *range(2 * len(blocks) + 1, len(static_shape(apart)))]
    turned = move.builder.emit(relax.op.permute_dims(apart, order))
    return relax.op.reshape(turned, (batch * math.prod(blocks), *cut[::2], *inner))


def _batch_to_space(move: Moved) -> relax.Expr:
    """Reverse SPACE_TO_BATCH_ND: move blocks from the batch into the other axes, then crop."""
    blocks, crops = _blocks(move), move.array(2, "crop").reshape(-1, 2).tolist()
    batch, *extents = static_shape(move.values[0])
    spatial, inner = extents[: len(blocks)], extents[len(blocks) :]
    if batch % math.prod(blocks):
        raise Refused(f"its batch of {batch} does not divide into blocks of {blocks}")
    apart = move.builder.emit(relax.op.reshape(move.values[0], (*blocks, batch // math.prod(blocks), *extents)))
    first = len(blocks)
    pairs = [axis for place in range(first) for axis in (first + 1 + place, place)]
    turned = move.builder.emit(
        relax.op.permute_dims(apart, [first, *pairs, *range(2 * first + 1, len(static_shape(apart)))])
    )
    sizes = [extent * block for extent, block in zip(spatial, blocks, strict=True)]
    whole = move.builder.emit(relax.op.reshape(turned, (batch // math.prod(blocks), *sizes, *inner)))
    ends = [size - after for size, (_, after) in zip(sizes, crops, strict=True)]
    if any(before < 0 or after < 0 or before >= end for (before, after), end in zip(crops, ends, strict=True)):
        raise Refused(f"it crops {sizes} by {crops}; crops are at least 0 and must leave elements")
    begins = [before for before, _ in crops]
    return relax.op.strided_slice(whole, list(range(1, first + 1)), begins, ends)


def _blocks(move: Moved) -> list[int]:
    blocks = [int(block) for block in move.array(1, "block shape").reshape(-1)]
    rank, pairs = len(static_shape(move.values[0])), move.array(2, "padding or crop").size
    if len(blocks) >= rank or min(blocks, default=0) < 1 or pairs != 2 * len(blocks):
        raise Refused(f"its blocks {blocks} do not fit an input of rank {rank} and {pairs} paddings or crops")
    return blocks


def _mirror_pad(move: Moved) -> relax.Expr:
    """Pad with mirrored elements: mirrored at the border elements (REFLECT), or just outside of them (SYMMETRIC)."""
    value, widths = move.values[0], move.array(1, "padding").reshape(-1, 2).tolist()
    is_symmetric = move.options(tflite.MirrorPadOptions).Mode() == tflite.MirrorPadMode.SYMMETRIC
    for axis, (extent, (before, after)) in enumerate(zip(static_shape(value), widths, strict=True)):
        if max(before, after) > (extent if is_symmetric else extent - 1):
            raise Refused(f"it mirrors {max(before, after)} of {extent} elements along axis {axis}")
        if before or after:
            places = np.pad(np.arange(extent), (before, after), "symmetric" if is_symmetric else "reflect")
            value = move.builder.emit(relax.op.take(value, constant(places.astype(np.int64)), axis))
    return value


def _embedding_lookup(move: Moved) -> relax.Expr:
    places, rows = move.values
    known, count = array_of(places), static_shape(rows)[0]
    if known is not None and ((known < 0) | (known >= count)).any():
        raise Refused(f"an index lies outside [0, {count})")
    return _gathered(move, rows, places, axis=0, batch=0)


def _gather(move: Moved) -> relax.Expr:
    options = move.options(tflite.GatherOptions)
    rank = len(static_shape(move.values[0]))
    return _gathered(move, *move.values, axis=options.Axis() % max(rank, 1), batch=options.BatchDims())


def _gathered(move: Moved, data: relax.Expr, places: relax.Expr, *, axis: int, batch: int) -> relax.Expr:
    """Return data[b, o, places[b, p], i] as [b, o, p, i]. An index outside of the data takes the nearest element."""
    shape, inner = static_shape(data), len(static_shape(places)) - batch

    def compute(source: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            index = tirx.Cast("int32", indices(*at[:batch], *at[axis : axis + inner]))
            bounded = tirx.max(tirx.min(index, tirx.const(shape[axis] - 1, "int32")), tirx.const(0, "int32"))
            return source(*at[:axis], bounded, *at[axis + inner :])

        result = (*shape[:axis], *static_shape(places)[batch:], *shape[axis + 1 :])
        return te.compute(result, element, "gathered")

    return move.builder.call_te(compute, data, places, primfunc_name_hint="gather")


def _dynamic_update_slice(move: Moved) -> relax.Expr:
    """Return the input with a part overwritten. A part that would reach outside of the input is moved inside."""
    data, part, begin = move.values
    shape, size = static_shape(data), static_shape(part)
    if len(size) != len(shape) or any(a > b for a, b in zip(size, shape, strict=True)):
        raise Refused(f"its part {list(size)} does not fit into {list(shape)}")
    if static_shape(begin) != (len(shape),):
        raise Refused(f"its begin has {list(static_shape(begin))} numbers; {len(shape)} are needed")

    def compute(whole: te.Tensor, new: te.Tensor, first: te.Tensor) -> te.Tensor:
        def place(axis: int) -> tirx.Expr:
            last = tirx.const(shape[axis] - size[axis], "int32")
            return tirx.max(tirx.min(tirx.Cast("int32", first[axis]), last), tirx.const(0, "int32"))

        def element(*at: tirx.Var) -> tirx.Expr:
            inside = [index - place(axis) for axis, index in enumerate(at)]
            within = tirx.all(*(tirx.And(i >= 0, i < size[axis]) for axis, i in enumerate(inside)))
            bounded = [tirx.max(tirx.min(i, size[axis] - 1), 0) for axis, i in enumerate(inside)]
            return tirx.Select(within, new(*bounded), whole(*at))

        return te.compute(shape, element, "updated")

    return move.builder.call_te(compute, data, part, begin, primfunc_name_hint="dynamic_update_slice")


def cumulative_sum(move: Moved) -> relax.Expr:
    """Return the cumulative sums along an axis, from the end of the axis if the options reverse it."""
    options, axis = move.options(tflite.CumsumOptions), int(move.array(1, "axis").reshape(()))
    value = move.values[0]
    if options.Reverse():
        value = move.builder.emit(relax.op.flip(value, axis))
    summed = move.builder.emit(relax.op.cumsum(value, axis, exclusive=options.Exclusive()))
    return relax.op.flip(summed, axis) if options.Reverse() else summed


def _resize_nearest(move: Moved) -> relax.Expr:
    """Resize to the nearest row and column, computed in single precision.

    Positions are rounded down, or with aligned corners to the nearest with halves away from zero.
    """
    options = move.options(tflite.ResizeNearestNeighborOptions)
    value, single = move.values[0], np.float32
    first = single(0.5 if options.HalfPixelCenters() else 0)
    rounding = single(0.5 if options.AlignCorners() else 0)
    for axis, wanted in enumerate(move.array(1, "size").reshape(-1).tolist(), start=1):
        last = static_shape(value)[axis] - 1
        aligned = options.AlignCorners() and wanted > 1
        step = single(last) / single(wanted - 1) if aligned else single(last + 1) / single(max(wanted, 1))
        places = (np.arange(wanted, dtype=single) + first) * step
        nearest = np.minimum(np.floor(places + rounding), last).astype(np.int64)
        value = move.builder.emit(relax.op.take(value, constant(nearest), axis))
    return value


def _strided_slice(move: Moved) -> relax.Expr:
    """Slice with single indices on axes whose begin is masked, as TensorFlow Lite Micro and LiteRT do.

    There the index is 0, or the last index for a negative step. TensorFlow and TVM use the begin that the mask hides.
    """
    options, shape = move.options(tflite.StridedSliceOptions), static_shape(move.values[0])
    masks = options.BeginMask(), options.EndMask(), options.ShrinkAxisMask()
    begins, ends, steps, kept = list[int](), list[int](), list[int](), list[int]()
    given = zip(*(move.array(place, "slice").reshape(-1).tolist() for place in (1, 2, 3)), strict=True)
    for axis, (begin, end, step) in enumerate(given):
        is_open, is_endless, is_one = (bool(mask >> axis & 1) for mask in masks)
        first, last, step = slice(
            None if is_open else begin, None if is_endless or is_one else end, step
        ).indices(shape[axis])  # fmt: skip
        count = 1 if is_one else len(range(first, last, step))
        begins.append(first)
        ends.append(first + count * step if first + count * step >= 0 else -shape[axis] - 1)
        steps.append(step)
        kept += [] if is_one else [count]
    part = relax.op.strided_slice(move.values[0], list(range(len(begins))), begins, ends, steps)
    return relax.op.reshape(part, [*kept, *shape[len(begins) :]])


def _zeros(move: Moved) -> relax.Expr:
    return relax.op.zeros_like(move.values[0])


def _where(move: Moved) -> relax.Expr:
    """Return the indices of the elements that are True, of a condition that is computed from constants and shapes."""
    condition = array_of(move.values[0])
    if condition is None:
        raise Refused("its result has a row for each element that is True, which depends on data")
    return constant(np.argwhere(condition).astype(np.int64))


def _sparse_to_dense(move: Moved) -> relax.Expr:
    """Return a tensor of one value with other values at constant indices."""
    indices, shape = move.array(0, "index"), tuple(int(extent) for extent in move.array(1, "shape").reshape(-1))
    places = indices.reshape(-1, len(shape))
    if ((places < 0) | (places >= np.array(shape))).any():
        raise Refused(f"an index lies outside {list(shape)}")
    filled = np.full(shape, move.array(3, "default value").reshape(()))
    filled[tuple(places.T)] = move.array(2, "values").reshape(-1) if indices.size else 0
    return constant(filled)


def moves_here(node: TfliteNode) -> bool:
    """Return True for an operator that this file converts.

    These include GATHER with batch axes only, and STRIDED_SLICE only with begin and shrink masks on one axis.
    """
    if node.operator not in _SOME or node.table.BuiltinOptions() is None:
        return node.operator in MOVEMENTS and node.operator not in _SOME
    kind, is_one = _SOME[node.operator]
    return is_one(options_of(node.table, kind))


MOVEMENTS: dict[str, Callable[[Moved], relax.Expr]] = {
    "EXPAND_DIMS": _expand_dims,
    "SQUEEZE": _squeeze,
    "FILL": _fill,
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "MIRROR_PAD": _mirror_pad,
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "CUMSUM": cumulative_sum,
    "GATHER": _gather,
    "RESIZE_NEAREST_NEIGHBOR": _resize_nearest,
    "STRIDED_SLICE": _strided_slice,
    "ZEROS_LIKE": _zeros,
    "WHERE": _where,
    "SPARSE_TO_DENSE": _sparse_to_dense,
}
# Operators that TVM's converters translate except for the cases in this table.
_SOME: dict[str, tuple[type, Callable[[Any], bool]]] = {
    "GATHER": (tflite.GatherOptions, lambda options: options.BatchDims() > 0),
    "STRIDED_SLICE": (
        tflite.StridedSliceOptions,
        lambda options: (
            options.BeginMask() & options.ShrinkAxisMask() and not (options.EllipsisMask() or options.NewAxisMask())
        ),
    ),
}


def gather_nd(data: relax.Expr, indices: relax.Expr) -> relax.Expr:
    """Return data[indices[..., 0], indices[..., 1], ...]. Raises Refused for constant indices outside of the data.

    TVM's own converter transposes the indices first, which is wrong for Relax's operator.
    """
    shape, depth = static_shape(data), static_shape(indices)[-1] if static_shape(indices) else 0
    if not 1 <= depth <= len(shape):
        raise Refused(f"its indices have {depth} numbers for each element; its data has rank {len(shape)}")
    known = array_of(indices)
    if known is not None:
        if (known < 0).any() or (known >= np.array(shape[:depth])).any():
            raise Refused(f"an index lies outside {list(shape[:depth])}")
        return relax.op.gather_nd(data, constant(known.astype(np.int64)))
    return relax.op.gather_nd(data, infer(relax.op.astype(indices, "int64")))
