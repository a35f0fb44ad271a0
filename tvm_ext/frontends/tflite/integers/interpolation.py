"""RESIZE_BILINEAR of integers: for int8 and int16 in steps of 1/1024 of a pixel, rounded once, halves away from zero.

LiteRT's default kernels (XNNPACK) compute int8 and uint8 in steps of 1/2048, halves up.

For uint8, TensorFlow Lite adds up real numbers in single precision. Where these are exact, as for images that grow by a
power of two, integers give the same elements. Elsewhere the sums are in single precision, in the same order.
"""

from __future__ import annotations

import numpy as np
import tflite
from tvm import relax, te, tirx

from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode

_BITS = 10
_ONE = 1 << _BITS
_SUMS = {"int8": "int32", "uint8": "int32", "int16": "int64"}
"""Type of the sums, which have 20 bits more than the elements, in LiteRT's default kernels 22."""


def resize_bilinear(node: IntegerNode) -> relax.Expr:
    """Resize [N, H, W, C] to the rows and columns of the second input."""
    options = node.options(tflite.ResizeBilinearOptions)
    batch, height, width, channels = node.shape(0)
    size = node.array(1, "size")
    if size.size != 2 or min(size.reshape(-1)) < 1:
        raise Refused(f"its size {size.reshape(-1).tolist()} is no number of rows and columns")
    rows, columns = (int(extent) for extent in size.reshape(-1))
    modes = options.AlignCorners(), options.HalfPixelCenters()
    taps_of, bits = (_litert_taps, _LITERT_BITS) if node.is_litert else (_taps, _BITS)
    rounded = _litert_rounded if node.is_litert else _rounded
    taps = [*taps_of(height, rows, *modes), *taps_of(width, columns, *modes)]
    sums = _SUMS[node.dtype]

    def compute(source: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        above, below, down, left, right, along = tables

        def element(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.Expr:
            def pixel(row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
                return tirx.Cast(sums, source(n, row, column, c))

            one, across, by = tirx.const(1 << bits, sums), tirx.Cast(sums, along[x]), tirx.Cast(sums, down[y])
            upper = pixel(above[y], left[x]) * (one - across) + pixel(above[y], right[x]) * across
            lower = pixel(below[y], left[x]) * (one - across) + pixel(below[y], right[x]) * across
            return rounded(upper * (one - by) + lower * by, sums, node.dtype)

        return te.compute((batch, rows, columns, channels), element, "resized")

    return node.builder.call_te(compute, node.values[0], *map(constant, taps), primfunc_name_hint="resize_bilinear")


def _taps(extent: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> tuple[np.ndarray, ...]:
    """Return for each pixel of the result the pixels on both sides, and its distance from the first, int32."""
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
    """Return place / 1024 rounded toward zero, as C divides."""
    return np.sign(place) * (np.abs(place) // _ONE)


def _rounded(total: tirx.Expr, sums: str, dtype: str) -> tirx.Expr:
    """Return an element of a sum in steps of 2^-20, halves away from zero.

    For sums of 0 or less the division rounds toward zero.
    """
    half, shift = tirx.const(1 << (2 * _BITS - 1), sums), tirx.const(2 * _BITS, sums)
    return tirx.Cast(dtype, tirx.Select(total > 0, (total + half) >> shift, -((half - total) >> shift)))


def _places(extent: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> np.ndarray:
    """Return the place of each pixel of the result among the pixels of the input, float32."""
    single = np.float32
    scale = single(extent) / single(wanted)
    if align_corners and wanted > 1:
        scale = single(extent - 1) / single(wanted - 1)
    places = np.arange(wanted, dtype=np.float32)
    return (places + single(0.5)) * scale - single(0.5) if half_pixel_centers else places * scale


_LITERT_BITS = 11
"""Bits of a distance in LiteRT's default kernels."""


def _litert_taps(extent: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> tuple[np.ndarray, ...]:
    """Return the same as `_taps`, in steps of 1/2048 of a pixel, from float32 places."""
    places = _places(extent, wanted, align_corners, half_pixel_centers)
    places = np.clip(places, np.float32(0), np.float32(extent - 1))
    before = np.floor(places).astype(np.int32)
    behind = np.minimum(before + 1, extent - 1).astype(np.int32)
    distances = (places - before.astype(np.float32)) * np.float32(1 << _LITERT_BITS)
    return before, behind, np.rint(distances).astype(np.int32)


def _litert_rounded(total: tirx.Expr, sums: str, dtype: str) -> tirx.Expr:
    """Return the element of a sum in steps of 2^-22, halves up."""
    half, shift = tirx.const(1 << (2 * _LITERT_BITS - 1), sums), tirx.const(2 * _LITERT_BITS, sums)
    return tirx.Cast(dtype, (total + half) >> shift)


_EXACT_BITS = 8
"""Bits of weights along each axis for which sums of products with bytes are exact in single precision."""


def resize_bilinear_unsigned(node: IntegerNode) -> relax.Expr:
    """Resize [N, H, W, C] to the rows and columns of the second input."""
    if node.is_litert:
        return resize_bilinear(node)
    options = node.options(tflite.ResizeBilinearOptions)
    batch, height, width, channels = node.shape(0)
    size = node.array(1, "size")
    if size.size != 2 or min(size.reshape(-1)) < 1:
        raise Refused(f"its size {size.reshape(-1).tolist()} is no number of rows and columns")
    rows, columns = (int(extent) for extent in size.reshape(-1))
    modes = options.AlignCorners(), options.HalfPixelCenters()
    above, below, down = _real_taps(height, rows, *modes)
    left, right, along = _real_taps(width, columns, *modes)
    scaled = [distance * (1 << _EXACT_BITS) for distance in (down, along)]
    is_exact = all((numbers == np.rint(numbers)).all() for numbers in scaled)
    dtype, one = ("int32", 1 << _EXACT_BITS) if is_exact else ("float32", 1)
    pairs = []
    for distance in scaled if is_exact else (down, along):
        pairs += [(np.float32(one) - distance).astype(dtype), distance.astype(dtype)]
    taps = [above, below, left, right, *pairs]

    def compute(source: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        above, below, left, right, upper, lower, before, behind = tables

        def element(n: tirx.Var, y: tirx.Var, x: tirx.Var, c: tirx.Var) -> tirx.Expr:
            def part(row: te.Tensor, column: te.Tensor, along_rows: te.Tensor, along_columns: te.Tensor) -> tirx.Expr:
                return tirx.Cast(dtype, source(n, row[y], column[x], c)) * along_rows[y] * along_columns[x]

            total = part(above, left, upper, before) + part(below, left, lower, before)
            total = total + part(above, right, upper, behind) + part(below, right, lower, behind)
            if not is_exact:
                return tirx.Cast("uint8", total + tirx.const(0.5, "float32"))
            half, shift = tirx.const(1 << (2 * _EXACT_BITS - 1), "int32"), tirx.const(2 * _EXACT_BITS, "int32")
            return tirx.Cast("uint8", (total + half) >> shift)

        return te.compute((batch, rows, columns, channels), element, "resized")

    return node.builder.call_te(compute, node.values[0], *map(constant, taps), primfunc_name_hint="resize_bilinear")


def _real_taps(extent: int, wanted: int, align_corners: bool, half_pixel_centers: bool) -> tuple[np.ndarray, ...]:
    """Return for each pixel of the result the pixels on both sides, int32, and its float32 distance from the first."""
    places = _places(extent, wanted, align_corners, half_pixel_centers)
    before = np.maximum(np.floor(places).astype(np.int32), 0)
    behind = np.minimum(np.ceil(places).astype(np.int32), extent - 1)
    return before, behind, places - before.astype(np.float32)
