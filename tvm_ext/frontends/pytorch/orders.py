"""Converters of PyTorch's order statistics, running extremes and distances.

A median of numbers with NaN among them is NaN, and so is a running extreme from the first NaN on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.pytorch.operators import Converter, arguments_of
from tvm_ext.frontends.ranks import ranked_indices
from tvm_ext.frontends.refusals import Refused

_MOST_DIFFERENCES = 1 << 24
"""Elements of all differences between two sets of points."""


def _kth_smallest(node: Any, importer: Any) -> relax.Expr:
    """Convert the k-th smallest elements along an axis, and their indices."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    if not static_shape(x):
        raise Refused("kthvalue of a single number")
    axis = given.get("dim", -1) % len(static_shape(x))
    found = _ordered(importer, x, axis, given["k"] - 1)
    return emit(relax.Tuple([_without(importer, value, axis, given) for value in found]))


def _median_along(node: Any, importer: Any) -> relax.Expr:
    """Convert the medians along an axis, and their indices. Of an even number it is the lower of the middle two."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    if not static_shape(x):
        raise Refused("the median along an axis of a single number")
    axis = given["dim"] % len(static_shape(x))
    found = _median(importer, x, axis)
    return emit(relax.Tuple([_without(importer, value, axis, given) for value in found]))


def _median_of_all(node: Any, importer: Any) -> relax.Expr:
    """Convert the median of all elements. Of an even number it is the lower of the middle two."""
    emit = importer.block_builder.emit
    flat = emit(relax.op.reshape(importer.env[arguments_of(node)["self"]], (-1,)))
    return emit(relax.op.reshape(_median(importer, flat, 0)[0], ()))


def _median(importer: Any, x: relax.Expr, axis: int) -> tuple[relax.Expr, relax.Expr]:
    emit = importer.block_builder.emit
    value, index = _ordered(importer, x, axis, (static_shape(x)[axis] - 1) // 2)
    if not str(x.ty.dtype).startswith("float"):
        return value, index
    is_nan = emit(relax.op.astype(emit(relax.op.isnan(x)), "int32"))
    has_nan = emit(relax.op.astype(emit(relax.op.max(is_nan, [axis], True)), "bool"))
    nan = relax.const(math.nan, x.ty.dtype)
    return (
        emit(relax.op.where(has_nan, nan, value)),
        emit(relax.op.where(has_nan, emit(relax.op.argmax(is_nan, axis, True)), index)),
    )


def _ordered(importer: Any, x: relax.Expr, axis: int, place: int) -> tuple[relax.Expr, relax.Expr]:
    """Return the elements at a place of the ascending order along an axis, and their indices. The axis is kept."""
    return _ranked(importer, x, axis, (place, place + 1), largest_first=False)


def _ranked(
    importer: Any, x: relax.Expr, axis: int, ranks: tuple[int, int], *, largest_first: bool
) -> tuple[relax.Expr, relax.Expr]:
    """Return the elements with the ranks [begin, end) along an axis, and their indices."""
    builder, shape, is_real = importer.block_builder, static_shape(x), str(x.ty.dtype).startswith("float")
    index = builder.emit_te(
        lambda source: ranked_indices(
            source, shape, axis, ranks, largest_first=largest_first, nan_is_largest=is_real
        ),
        x, primfunc_name_hint="ranked",
    )  # fmt: skip
    return builder.emit(relax.op.gather_elements(x, index, axis)), index


def _sorted(node: Any, importer: Any) -> relax.Expr:
    """Convert all elements along an axis in order, and their indices. Equal elements keep their order."""
    given = arguments_of(node)
    x = importer.env[given["self"]]
    axis = given.get("dim", -1) % len(static_shape(x))
    extent = (0, static_shape(x)[axis])
    found = _ranked(importer, x, axis, extent, largest_first=bool(given.get("descending", False)))
    return importer.block_builder.emit(relax.Tuple(list(found)))


def _order(node: Any, importer: Any) -> relax.Expr:
    """Convert the indices that order the elements along an axis."""
    given = arguments_of(node)
    x = importer.env[given["self"]]
    axis = given.get("dim", -1) % len(static_shape(x))
    extent = (0, static_shape(x)[axis])
    return _ranked(importer, x, axis, extent, largest_first=bool(given.get("descending", False)))[1]


def _first_in_order(node: Any, importer: Any) -> relax.Expr:
    """Convert the k largest or smallest elements along an axis in order, and their indices."""
    given = arguments_of(node)
    x = importer.env[given["self"]]
    axis = given.get("dim", -1) % len(static_shape(x))
    found = _ranked(importer, x, axis, (0, given["k"]), largest_first=bool(given.get("largest", True)))
    return importer.block_builder.emit(relax.Tuple(list(found)))


def _without(importer: Any, value: relax.Expr, axis: int, given: dict[str, Any]) -> relax.Expr:
    """Return a value without its reduced axis, unless the node keeps it."""
    return value if given.get("keepdim", False) else importer.block_builder.emit(relax.op.squeeze(value, [axis]))


def _running_extreme(exceeds: Callable[..., relax.Expr]) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert the largest or smallest elements up to each position, and their last indices."""
        given, emit = arguments_of(node), importer.block_builder.emit
        x = importer.env[given["self"]]
        shape = static_shape(x)
        if not shape:
            raise Refused("a running extreme of a single number")
        axis, is_real = given["dim"] % len(shape), str(x.ty.dtype).startswith("float")
        along = [1] * len(shape)
        along[axis] = shape[axis]
        places = constant(np.broadcast_to(np.arange(shape[axis]).reshape(along), shape).astype(np.int64))

        def later(before: list[relax.Expr], own: list[relax.Expr]) -> list[relax.Expr]:
            wins = emit(exceeds(before[0], own[0]))
            if is_real:
                own_is_number = emit(relax.op.logical_not(emit(relax.op.isnan(own[0]))))
                only_before = emit(relax.op.logical_and(emit(relax.op.isnan(before[0])), own_is_number))
                wins = emit(relax.op.logical_or(wins, only_before))
            return [emit(relax.op.where(wins, *pair)) for pair in zip(before, own, strict=True)]

        return emit(relax.Tuple(_scanned(importer, [x, places], axis, later)))

    return convert


def _running_log_sum(node: Any, importer: Any) -> relax.Expr:
    """Convert the logarithm of the sum of powers of e up to each position."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    if not str(x.ty.dtype).startswith("float") or not static_shape(x):
        raise Refused(f"logcumsumexp of {x.ty.dtype}{list(static_shape(x))}; give real numbers along an axis")

    def added(before: list[relax.Expr], own: list[relax.Expr]) -> list[relax.Expr]:
        return [emit(relax.op.log_add_exp(before[0], own[0]))]

    return _scanned(importer, [x], given["dim"] % len(static_shape(x)), added)[0]


def _scanned(
    importer: Any, values: list[relax.Expr], axis: int,
    combine: Callable[[list[relax.Expr], list[relax.Expr]], list[relax.Expr]],
) -> list[relax.Expr]:  # fmt: skip
    """Return an associative function over all elements up to each position, in steps that double their reach.

    combine: takes the values of earlier elements and those of the elements themselves.
    """
    emit, extent, reach = importer.block_builder.emit, static_shape(values[0])[axis], 1

    def part(value: relax.Expr, begin: int, end: int) -> relax.Expr:
        return emit(relax.op.strided_slice(value, [axis], [begin], [end]))

    while reach < extent:
        before = [part(value, 0, extent - reach) for value in values]
        own = [part(value, reach, extent) for value in values]
        first = [part(value, 0, reach) for value in values]
        combined = combine(before, own)
        values = [emit(relax.op.concat(pair, axis)) for pair in map(list, zip(first, combined, strict=True))]
        reach *= 2
    return values


def _distances(node: Any, importer: Any) -> relax.Expr:
    """Convert the distance of each point of a set from each point of another."""
    given, emit = arguments_of(node), importer.block_builder.emit
    first, second = importer.env[given["x1"]], importer.env[given["x2"]]
    rows = emit(relax.op.expand_dims(first, len(static_shape(first)) - 1))
    columns = emit(relax.op.expand_dims(second, len(static_shape(second)) - 2))
    return _norm(importer, rows, columns, float(given["p"]))


def _distances_within(node: Any, importer: Any) -> relax.Expr:
    """Convert the distance of each point of a set from each later point."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x = importer.env[given["self"]]
    first, second = (
        emit(relax.op.take(x, constant(places.astype(np.int64)), 0))
        for places in np.triu_indices(static_shape(x)[0], 1)
    )
    return _norm(importer, first, second, float(given.get("p", 2)))


def _norm(importer: Any, first: relax.Expr, second: relax.Expr, power: float) -> relax.Expr:
    """Return the norms of differences along the last axis."""
    emit, dtype = importer.block_builder.emit, str(first.ty.dtype)
    size = math.prod(np.broadcast_shapes(static_shape(first), static_shape(second)))
    if size > _MOST_DIFFERENCES:
        raise Refused(f"distances by {size:,} differences; give fewer points")
    apart = emit(relax.op.abs(emit(relax.op.subtract(first, second))))
    if math.isinf(power):
        return emit(relax.op.max(apart, [-1]))
    if power == 0:
        return emit(
            relax.op.sum(emit(relax.op.astype(emit(relax.op.not_equal(apart, relax.const(0, dtype))), dtype)), [-1])
        )
    if power == 1:
        return emit(relax.op.sum(apart, [-1]))
    raised = relax.op.multiply(apart, apart) if power == 2 else relax.op.power(apart, relax.const(power, dtype))
    total = emit(relax.op.sum(emit(raised), [-1]))
    return emit(relax.op.sqrt(total) if power == 2 else relax.op.power(total, relax.const(1 / power, dtype)))


CONVERTERS: dict[str, Converter] = {
    "sort.default": _sorted,
    "sort.stable": _sorted,
    "argsort.default": _order,
    "topk.default": _first_in_order,
    "kthvalue.default": _kth_smallest,
    "median.default": _median_of_all,
    "median.dim": _median_along,
    "cummax.default": _running_extreme(relax.op.greater),
    "cummin.default": _running_extreme(relax.op.less),
    "logcumsumexp.default": _running_log_sum,
    "_cdist_forward.default": _distances,
    "_pdist_forward.default": _distances_within,
}
"""Converters for TVM's importer, by operator."""
