"""BATCH_MATMUL of int8 or int16: sums of 32 or 64 bits, rounded twice, or once with a factor of 15 bits."""

from __future__ import annotations

import numpy as np
import tflite
from tvm import relax, te, tirx

from codegen_c.kernels.shared.requantize_tflite import fixed_point_wide
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.rescale import check_sums, clamped, rescaled


def batch_matmul(node: IntegerNode) -> relax.Expr:
    """a[..., N, K] times b[..., K, M], either with its last two axes swapped."""
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
    """Distance of an element from its zero point, in the type of sums."""
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
    """Indices of an input's batch axes, which may be fewer, or of extent 1."""
    extents = shape[:-2]
    return [0 if e == 1 else i for e, i in zip(extents, outer[len(outer) - len(extents) :], strict=True)]
