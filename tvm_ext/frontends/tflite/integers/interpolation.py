"""RESIZE_BILINEAR of int8, in steps of 1/1024 of a pixel, rounded once, halves away from zero."""

from __future__ import annotations

import numpy as np
import tflite
from tvm import relax, te, tirx

from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode

_BITS = 10
_ONE = 1 << _BITS


def resize_bilinear(node: IntegerNode) -> relax.Expr:
    """[N, H, W, C] to the rows and columns of the second input."""
    options = node.options(tflite.ResizeBilinearOptions)
    batch, height, width, channels = node.shape(0)
    size = node.array(1, "size")
    if size.size != 2 or min(size.reshape(-1)) < 1:
        raise Refused(f"its size {size.reshape(-1).tolist()} is no number of rows and columns")
    rows, columns = (int(extent) for extent in size.reshape(-1))
    modes = options.AlignCorners(), options.HalfPixelCenters()
    taps = [*_taps(height, rows, *modes), *_taps(width, columns, *modes)]

    def compute(source: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        above, below, down, left, right, along = tables

        def element(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.Expr:
            def pixel(row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
                return tirx.Cast("int32", source(n, row, column, c))

            one = tirx.const(_ONE, "int32")
            upper = pixel(above[y], left[x]) * (one - along[x]) + pixel(above[y], right[x]) * along[x]
            lower = pixel(below[y], left[x]) * (one - along[x]) + pixel(below[y], right[x]) * along[x]
            return _rounded(upper * (one - down[y]) + lower * down[y])

        return te.compute((batch, rows, columns, channels), element, "resized")

    return node.builder.call_te(compute, node.values[0], *map(constant, taps), primfunc_name_hint="resize_bilinear")


def _taps(extent: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> tuple[np.ndarray, ...]:
    """For each pixel of the result: the pixels before and behind it, and its distance from the first, int32."""
    step = (_ONE * extent + wanted // 2) // wanted
    if align_corners and wanted > 1:
        step = (_ONE * (extent - 1) + (wanted - 1) // 2) // (wanted - 1)
    place = np.arange(wanted, dtype=np.int64) * step
    if half_pixel_centers:
        place += step // 2 - _ONE // 2
    before = np.maximum(_divided(place), 0)
    behind = np.minimum(_divided(place + _ONE - 1), extent - 1)
    return tuple(array.astype(np.int32) for array in (before, behind, place - _ONE * before))


def _divided(place: np.ndarray) -> np.ndarray:
    """place / 1024 toward zero, as C divides."""
    return np.sign(place) * (np.abs(place) // _ONE)


def _rounded(total: tirx.Expr) -> tirx.Expr:
    """int8 of a sum in steps of 2^-20, halves away from zero; of 0 or less the division is toward zero."""
    half, shift = tirx.const(1 << (2 * _BITS - 1), "int32"), tirx.const(2 * _BITS, "int32")
    return tirx.Cast("int8", tirx.Select(total > 0, (total + half) >> shift, -((half - total) >> shift)))
