"""Resized axes: the indices and weights of source elements, and a tensor resized by them, axis by axis.

Source: the ONNX standard, operator Resize.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from tvm import relax, te, tirx

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.refusals import Refused

_MAX_TARGET = 1 << 16
_MAX_TAPS = 1 << 18
_TIE = 1e-4
"""Distance in elements within which rounding may decide."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis to resize.

    scale: output extent over input extent, before rounding.
    roi: of tf_crop_and_resize.
    """

    source: int
    target: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Interpolation:
    """The method of sampling, by the operator's attributes of the same names."""

    mode: str
    coordinates: str
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Taps:
    """The source elements of each output element.

    indices: int32[target, taps].
    weights: float32[target, taps].
    outside: bool[target], whether the element is the extrapolation value.
    """

    indices: np.ndarray
    weights: np.ndarray
    outside: np.ndarray


def taps(axis: Axis, how: Interpolation) -> Taps:
    """Return the taps of an axis.

    Raises Refused for modes that the standard lacks, and for axes too long for tables.
    """
    if not 0 < axis.target <= _MAX_TARGET:
        raise Refused(f"an axis of {axis.target} elements; 1 to {_MAX_TARGET} can be resized to")
    shrinks = how.antialias and axis.scale > 0
    num_taps = 2 * math.ceil(2 / min(axis.scale, 1.0)) + 2 if shrinks else 4
    if axis.target * num_taps > _MAX_TAPS:
        raise Refused(f"{axis.target} elements of {num_taps} each along an axis; {_MAX_TAPS} in all can be resized to")
    rows = [_row(_coordinate(axis, how.coordinates, x), axis, how) for x in range(axis.target)]
    positions = [_coordinate(axis, how.coordinates, x) for x in range(axis.target)]
    is_cropped = how.coordinates == "tf_crop_and_resize"
    return Taps(
        indices=np.clip([indices for indices, _ in rows], 0, axis.source - 1).astype("int32"),
        weights=np.array([weights for _, weights in rows], "float32"),
        outside=np.array([is_cropped and not 0 <= x <= axis.source - 1 for x in positions], "bool"),
    )


def _coordinate(axis: Axis, mode: str, x: int) -> float:
    """Return the coordinate in the input of output element x.

    Computed in float32, as onnxruntime does (upsamplebase.h): in float64 some would fall on the other side of the
    integer or of the half at which the nearest element changes. PyTorch (UpSample.h) multiplies by a rounded step where
    onnxruntime divides, which moves a coordinate of 11 by 1e-6.
    """
    one, half = np.float32(1), np.float32(0.5)
    at, scale, last = np.float32(x), np.float32(axis.scale), np.float32(axis.source - 1)
    if mode == "align_corners":
        width = scale * np.float32(axis.source)
        return 0.0 if width == 1 else float(at * last / (width - one))
    if mode == "torch_align_corners":
        return 0.0 if axis.target == 1 else float(at * (last / np.float32(axis.target - 1)))
    if mode == "torch_half_pixel":
        return float((at + half) * np.float32(1 / axis.scale) - half)
    if mode == "asymmetric":
        whole = scale == np.float32(axis.target) / np.float32(axis.source)
        return float(at * np.float32(axis.source) / np.float32(axis.target) if whole else at / scale)
    if mode == "tf_crop_and_resize":
        begin, end = (np.float32(corner) for corner in axis.roi)
        if axis.target == 1:
            return float(half * (begin + end) * last)
        return float(begin * last + at * (end - begin) * last / np.float32(axis.target - 1))
    if mode == "pytorch_half_pixel" and axis.target == 1:
        return 0.0
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return float((at + half) / scale - half)
    if mode == "half_pixel_symmetric":
        return _symmetric(axis, x)
    raise Refused(f"the coordinate transformation {mode} is not known")


def _symmetric(axis: Axis, x: int) -> float:
    """Return the coordinate of half_pixel_symmetric, exactly where a fraction of an element is cut off.

    There each of its roundings in float32 may move it; where none is cut off, onnxruntime rounds as this does.
    """
    scale = float(np.float32(axis.scale))
    if _is_whole(axis):
        return float(np.float32((x + 0.5) / scale - 0.5))
    exact, half = Fraction(scale), Fraction(1, 2)
    return float(half * (axis.source - axis.target / exact) + (x + half) / exact - half)


def _is_whole(axis: Axis) -> bool:
    """Return True where the factor gives a whole number of elements, in float32."""
    return bool(np.float32(axis.scale) * np.float32(axis.source) == axis.target)


def _row(x: float, axis: Axis, how: Interpolation) -> tuple[Sequence[int], Sequence[float]]:
    """Return indices, which may lie outside, and weights."""
    base = math.ceil(x) - 1
    ratio = x - base  # in (0, 1]
    if how.mode == "nearest":
        _check_tie(x, axis, how)
        return [base + _nearest(ratio, how.nearest_mode)], [1.0]
    scale = min(axis.scale, 1.0) if how.antialias else 1.0
    reach = {"linear": 1, "cubic": 2}.get(how.mode)
    if reach is None:
        raise Refused(f"the mode {how.mode} is not known")
    first = math.floor(-reach / scale) + 1
    offsets = range(first, 2 - first)
    kernel = _triangle if how.mode == "linear" else lambda d: _cubic(d, how.cubic_coeff_a)
    weights = np.array([kernel((offset - ratio) * scale) for offset in offsets])
    if how.antialias:
        weights /= weights.sum()
    if how.exclude_outside:
        weights *= [0 <= base + offset < axis.source for offset in offsets]
        weights /= weights.sum()
    return [base + offset for offset in offsets], weights.tolist()


def _check_tie(x: float, axis: Axis, how: Interpolation) -> None:
    """Raise Refused where the last bit of a coordinate decides which element is nearest, and runtimes differ."""
    boundary = x - 0.5 if how.nearest_mode.startswith("round") else x
    distance = abs(boundary - round(boundary))
    divisor = Fraction(float(np.float32(axis.scale))).numerator  # division by a power of two is exact
    may_round = how.coordinates == "half_pixel_symmetric" and not _is_whole(axis) and divisor & (divisor - 1) != 0
    if may_round and 0 < x < axis.source - 1 and distance < _TIE:
        raise Refused(
            f"half_pixel_symmetric by the factor {axis.scale:g}: the coordinate {x:g} lies so near to where the "
            "nearest element changes that runtimes round it to one side or the other; give sizes in place of scales"
        )


def _nearest(ratio: float, mode: str) -> int:
    if ratio == 1.0:
        return 1
    chosen = {
        "round_prefer_floor": ratio > 0.5,
        "round_prefer_ceil": ratio >= 0.5,
        "floor": False,
        "ceil": True,
    }
    if mode not in chosen:
        raise Refused(f"the nearest mode {mode} is not known")
    return int(chosen[mode])


def _triangle(distance: float) -> float:
    return max(0.0, 1.0 - abs(distance))


def _cubic(distance: float, a: float) -> float:
    d = abs(distance)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0.0


def interpolated(
    bb: relax.BlockBuilder, x: relax.Expr, axes: Mapping[int, Axis], tables: Mapping[int, Taps]
) -> relax.Expr:
    """Return `x` with weighted sums of its elements along each axis that has a table."""
    # The axis that shrinks most comes first, which leaves less work for the others.
    for axis in sorted(tables, key=lambda axis: axes[axis].target / axes[axis].source):
        x = _along(bb, x, axis, tables[axis])
    return x


def gathered(bb: relax.BlockBuilder, x: relax.Expr, tables: Mapping[int, Taps]) -> relax.Expr:
    """Return `x` with the first tap of each row in place of the elements of each axis that has a table."""
    order = sorted(tables)
    shape = [tables[axis].indices.shape[0] if axis in tables else n for axis, n in enumerate(static_shape(x))]

    def compute(source: te.Tensor, *indices: te.Tensor) -> te.Tensor:
        table_of = dict(zip(order, indices, strict=True))
        pick = lambda axis, i: table_of[axis][i] if axis in table_of else i  # noqa: E731
        return te.compute(shape, lambda *at: source(*(pick(axis, i) for axis, i in enumerate(at))), "resize")

    indices = [constant(tables[axis].indices[:, 0]) for axis in order]
    return bb.normalize(bb.call_te(compute, x, *indices, primfunc_name_hint="resize_nearest"))


def is_identity(table: Taps, axis: Axis) -> bool:
    """Return True where each element of an axis stays unchanged."""
    if axis.source != axis.target or table.outside.any():
        return False
    chosen = table.weights == 1
    plain = bool((chosen.sum(1) == 1).all() and ((table.weights == 0) | chosen).all())
    return plain and bool((table.indices[chosen] == np.arange(axis.source)).all())


def _along(bb: relax.BlockBuilder, x: relax.Expr, axis: int, table: Taps) -> relax.Expr:
    target, num_taps = table.indices.shape
    shape = [target if index == axis else extent for index, extent in enumerate(static_shape(x))]

    def compute(source: te.Tensor, indices: te.Tensor, weights: te.Tensor) -> te.Tensor:
        tap = te.reduce_axis((0, num_taps), "tap")

        def element(*at: tirx.Var) -> tirx.Expr:
            place = [indices[i, tap] if index == axis else i for index, i in enumerate(at)]
            return te.sum(source(*place) * weights[at[axis], tap], axis=tap)

        return te.compute(shape, element, "resize")

    weights = constant(table.weights.astype(str(x.ty.dtype)))
    call = bb.call_te(compute, x, constant(table.indices), weights, primfunc_name_hint="resize_interpolate")
    return bb.normalize(call)
