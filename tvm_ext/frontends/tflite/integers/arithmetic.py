"""Sums, products and element-wise arithmetic of integers, exact to TensorFlow Lite.

Inputs are int8, uint8 or int16, and broadcast as in numpy. Sums convert both inputs to 2^-20 of twice the larger scale,
for int16 to 2^-15; squared differences to 2^-7 and 1; comparisons to 2^-8 of a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tflite
from tvm import relax, te, tirx

from codegen_c.kernels.shared.requantize import fixed_point
from codegen_c.kernels.shared.requantize_tflite import fixed_point_wide
from relay_passes.dataflow import static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.movement import Moved, cumulative_sum
from tvm_ext.frontends.tflite.rescale import check_sums, clamped, rescaled

_SUM_BITS = {"int8": 20, "uint8": 20, "int16": 15}
_DIFFERENCE_BITS = {"int8": 7, "int16": 0}
_COMPARISON_BITS = 8
_FURTHEST = {"int8": 255, "uint8": 255, "int16": 1 << 15}
"""Largest distance of an element from the zero point, which is 0 for int16."""


def _sum(node: IntegerNode, options: type, sign: int) -> relax.Expr:
    bits, common = _SUM_BITS[node.dtype], 2 * max(node.scale(0), node.scale(1))
    factor = common / (1 << bits) / node.scale()
    _check(node, 1 << bits, factor)
    limits = _limits(node, node.options(options).FusedActivationFunction())

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        first = rescaled(a * wide(1 << bits), node.scale(0) / common)
        second = rescaled(b * wide(1 << bits), node.scale(1) / common)
        return _bounded(node, rescaled(first + wide(sign) * second, factor), limits)

    return node.elementwise(element, 0, 1)


def add(node: IntegerNode) -> relax.Expr:
    return _sum(node, tflite.AddOptions, 1)


def subtract(node: IntegerNode) -> relax.Expr:
    return _sum(node, tflite.SubOptions, -1)


def multiply(node: IntegerNode) -> relax.Expr:
    factor = node.scale(0) * node.scale(1) / node.scale()
    _check(node, _FURTHEST[node.dtype], factor)
    limits = _limits(node, node.options(tflite.MulOptions).FusedActivationFunction())
    return node.elementwise(lambda a, b: _bounded(node, rescaled(a * b, factor), limits), 0, 1)


def maximum(node: IntegerNode) -> relax.Expr:
    return _chosen(node, tirx.max)


def minimum(node: IntegerNode) -> relax.Expr:
    return _chosen(node, tirx.min)


def _chosen(node: IntegerNode, choose: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> relax.Expr:
    """Select one of two elements of the same scale and zero point."""
    return node.elementwise(lambda a, b: clamped(choose(a, b) + wide(node.zero_point()), node.dtype), 0, 1)


def greatest(node: IntegerNode) -> relax.Expr:
    return _chosen_along(node, relax.op.max)


def least(node: IntegerNode) -> relax.Expr:
    return _chosen_along(node, relax.op.min)


def _chosen_along(node: IntegerNode, choose: Callable[..., relax.Expr]) -> relax.Expr:
    """Select one of the elements along axes. The result has the scale of the input."""
    axes = sorted({int(axis) % len(node.shape(0)) for axis in node.array(1, "axes").reshape(-1)})
    return choose(node.values[0], axes, bool(node.options(tflite.ReducerOptions).KeepDims()))


def squared_difference(node: IntegerNode) -> relax.Expr:
    bits, common = _DIFFERENCE_BITS[node.dtype], 2 * max(node.scale(0), node.scale(1))
    factor = common * common / ((1 << 2 * bits) * node.scale())
    _check(node, _FURTHEST[node.dtype] << 2 * bits, factor)

    def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        first = rescaled(a * wide(1 << bits), node.scale(0) / common)
        second = rescaled(b * wide(1 << bits), node.scale(1) / common)
        return _bounded(node, rescaled((first - second) * (first - second), factor))

    return node.elementwise(element, 0, 1)


def prelu(node: IntegerNode) -> relax.Expr:
    above, below = node.scale(0) / node.scale(), node.scale(0) * node.scale(1) / node.scale()
    _check(node, 1, above)
    _check(node, _FURTHEST["int8"], below)

    def element(value: tirx.Expr, slope: tirx.Expr) -> tirx.Expr:
        return _bounded(node, tirx.Select(value >= wide(0), rescaled(value, above), rescaled(value * slope, below)))

    return node.elementwise(element, 0, 1)


def leaky_relu(node: IntegerNode) -> relax.Expr:
    """Apply a negative slope, which changes the sign after the rounding; LiteRT's default kernels have 8 bits of it."""
    slope = float(np.float32(node.options(tflite.LeakyReluOptions).Alpha()))
    above, below = node.scale(0) / node.scale(), -node.scale(0) * slope / node.scale()
    _check(node, 1, max(above, below))
    if node.is_litert:
        ratio = np.float32(node.scale(0)) / np.float32(node.scale())
        positive, negative = (int(np.rint(np.float32(-256) * side)) for side in (ratio, ratio * np.float32(slope)))

        def litert(value: tirx.Expr) -> tirx.Expr:
            factor = tirx.Select(value > wide(0), wide(positive), wide(negative))
            return _bounded(node, (-value * factor + wide(128)) >> wide(8))

        return node.elementwise(litert, 0)

    def element(value: tirx.Expr) -> tirx.Expr:
        return _bounded(node, tirx.Select(value >= wide(0), rescaled(value, above), -rescaled(value, below)))

    return node.elementwise(element, 0)


def comparison(compare: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> Callable[[IntegerNode], relax.Expr]:
    """Return a converter of a comparison."""

    def convert(node: IntegerNode) -> relax.Expr:
        if max(node.scale(0), node.scale(1)) >= 1:
            raise Refused("TensorFlow Lite compares integers with scales below 1 only")

        def element(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
            first = rescaled(a * wide(1 << _COMPARISON_BITS), node.scale(0))
            return compare(first, rescaled(b * wide(1 << _COMPARISON_BITS), node.scale(1)))

        return node.elementwise(element, 0, 1)

    return convert


def order_of_words(compare: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> Callable[[IntegerNode], relax.Expr]:
    """Return a converter of a comparison of int16 by order, in which LiteRT compares the integers themselves."""

    def convert(node: IntegerNode) -> relax.Expr:
        if node.scale(0) != node.scale(1):
            raise Refused(
                "LiteRT compares int16 without regard to scales, and those of its inputs differ; convert the model "
                "with one scale for both"
            )
        return node.elementwise(compare, 0, 1)

    return convert


def _check(node: IntegerNode, steps: int, factor: float) -> None:
    """Raise Refused where steps of an input, times a factor and their number, or twice that, exceed int32."""
    check_sums(np.array([_FURTHEST[node.dtype] * steps]), factor)


def _bounded(node: IntegerNode, steps: tirx.Expr, limits: tuple[int, int] | None = None) -> tirx.Expr:
    """Return steps of the output as its elements, within the limits of a fused activation."""
    shifted = steps + wide(node.zero_point())
    if limits is not None:
        shifted = tirx.max(tirx.min(shifted, wide(limits[1])), wide(limits[0]))
    return clamped(shifted, node.dtype)


def _limits(node: IntegerNode, function: int) -> tuple[int, int]:
    """Return the least and greatest element that an activation keeps."""
    info, kinds = np.iinfo(node.dtype), tflite.ActivationFunctionType
    real = {kinds.NONE: (-np.inf, np.inf), kinds.RELU: (0, np.inf), kinds.RELU6: (0, 6), kinds.RELU_N1_TO_1: (-1, 1)}
    if function not in real:
        raise Refused(f"its fused activation {function} is not supported")
    low, high = (
        None if np.isinf(bound) else node.zero_point() + _rounded(np.float32(bound) / np.float32(node.scale()))
        for bound in real[function]
    )
    return (info.min if low is None else max(low, info.min)), (info.max if high is None else min(high, info.max))


def _rounded(number: np.float32) -> int:
    """Return the nearest whole number, with halves away from zero."""
    return int(np.copysign(np.floor(np.abs(number) + 0.5), number))


def batch_matmul(node: IntegerNode) -> relax.Expr:
    """Multiply a[..., N, K] by b[..., K, M], either with its last two axes swapped."""
    options = node.options(tflite.BatchMatMulOptions)
    first, second = node.shape(0), node.shape(1)
    rows, depth = _swapped(first[-2:], options.AdjX())
    inner, columns = _swapped(second[-2:], options.AdjY())
    if depth != inner:
        raise Refused(f"{list(first)} and {list(second)} cannot be multiplied")
    batch = _repeated_shape(first[:-2], second[:-2])
    factor = node.scale(0) * node.scale(1) / node.scale()
    if node.dtype == "int8":
        check_sums(np.array([depth * 255 * 255]), factor)

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, depth), "k")

        def product(*at: tirx.Var) -> tirx.Expr:
            *outer, row, column = at
            left = (*_batch(outer, first), *_swapped((row, axis.var), options.AdjX()))
            right = (*_batch(outer, second), *_swapped((axis.var, column), options.AdjY()))
            return te.sum(_distance(node, a, 0, left) * _distance(node, b, 1, right), axis)

        shape = (*batch, rows, columns)
        sums = te.compute(shape, product, "sums")
        return te.compute(shape, lambda *at: _finished(node, sums(*at), factor), "product")

    return node.builder.call_te(compute, node.values[0], node.values[1], primfunc_name_hint="batch_matmul")


def _distance(node: IntegerNode, source: te.Tensor, place: int, at: tuple) -> tirx.Expr:
    """Return the distance of an element from its zero point, in the type of the accumulators."""
    dtype = "int32" if node.dtype == "int8" else "int64"
    return tirx.Cast(dtype, source(*at)) - tirx.const(node.zero_point(place), dtype)


def _finished(node: IntegerNode, total: tirx.Expr, factor: float) -> tirx.Expr:
    if node.dtype == "int8":
        return clamped(rescaled(tirx.Cast("int64", total), factor) + wide(node.zero_point()), node.dtype)
    mantissa, shift = fixed_point_wide(factor)
    if shift < 1:
        raise Refused(f"its scales are a factor of {factor:g} apart")
    return clamped((total * wide(mantissa) + wide(1 << (shift - 1))) >> wide(shift), node.dtype)


def _swapped(pair: tuple, swaps: bool) -> tuple:
    return (pair[1], pair[0]) if swaps else (pair[0], pair[1])


def _repeated_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(np.broadcast_shapes(first, second))
    except ValueError:
        raise Refused(f"batches of {list(first)} and {list(second)} cannot be repeated to one shape") from None


def _batch(outer: list[tirx.Var], shape: tuple[int, ...]) -> list:
    """Return the indices of an input's batch axes, which may be fewer, or of extent 1."""
    extents = shape[:-2]
    return [0 if e == 1 else i for e, i in zip(extents, outer[len(outer) - len(extents) :], strict=True)]


_LARGEST_RATIO = 1 << 20
"""Output steps per input step, times the number of terms. Below this bound accumulators stay in int64."""


def add_n(node: IntegerNode) -> relax.Expr:
    """Add tensors of equal shape, each with its own scale. Raises Refused for scales too far apart."""
    ratios = [node.scale(place) / node.scale() for place in range(len(node.inputs))]
    shift = _shift(max(ratios), sum(ratios))
    factors = [round(ratio * 2.0**shift) for ratio in ratios]

    def element(*steps: tirx.Expr) -> tirx.Expr:
        total = sum((step * wide(factor) for step, factor in zip(steps, factors, strict=True)), wide(0))
        return _finished_sum(node, total, shift)

    return node.elementwise(element, *range(len(node.inputs)))


def sums_along(node: IntegerNode) -> relax.Expr:
    """Add all elements up to each element along an axis. Raises Refused for scales too far apart."""
    axis = int(node.array(1, "axis").reshape(()))
    ratio = node.scale(0) / node.scale()
    shift = _shift(ratio, ratio * static_shape(node.values[0])[axis])
    whole = node.builder.emit(relax.op.astype(node.values[0], "int32"))
    distances = node.builder.emit(relax.op.subtract(whole, relax.const(node.zero_point(0), "int32")))
    values = (distances, node.values[1])
    summed = node.builder.emit(cumulative_sum(Moved(table=node.table, values=values, zero=0, builder=node.builder)))
    factor = round(ratio * 2.0**shift)
    return node.of_integers(summed, lambda steps: _finished_sum(node, steps * wide(factor), shift))


def _shift(ratio: float, total: float) -> int:
    """Return the fractional bits of factors: 31 bits for the largest factor, as far as accumulators leave room."""
    if not math.isfinite(total) or total >= _LARGEST_RATIO:
        raise Refused(f"its sums reach {total:.3g} steps of its result for one of its inputs; the limit is 2^20")
    return min(fixed_point(ratio)[1], 50)


def _finished_sum(node: IntegerNode, total: tirx.Expr, shift: int) -> tirx.Expr:
    half = wide(1 << (shift - 1))
    sign = tirx.Cast("int64", total < wide(0))
    return clamped(((total + half - sign) >> wide(shift)) + wide(node.zero_point()), node.dtype)
