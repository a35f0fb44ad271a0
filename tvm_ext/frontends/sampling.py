"""Sources of the elements of a resized axis: indices and weights, computed at compile time.

Source: the ONNX standard, operator Resize.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_ext.frontends.refusals import Refused

_MAX_TARGET = 1 << 16
_MAX_TAPS = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis to resize. scale: output extent over input extent before it was rounded; roi: of tf_crop_and_resize."""

    source: int
    target: int
    scale: float
    roi: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Interpolation:
    """The way to sample: the operator's attributes of the same names."""

    mode: str
    coordinates: str
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Taps:
    """Per output element: the elements it is made of.

    indices int32[target, taps], weights float32[target, taps]; outside bool[target]: it is the extrapolation value.
    """

    indices: np.ndarray
    weights: np.ndarray
    outside: np.ndarray


def taps(axis: Axis, how: Interpolation) -> Taps:
    """Raises Refused for modes the standard does not have, and for axes too long to make tables for."""
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
    """The place in the input that output element x looks at."""
    source, scale = axis.source, axis.scale
    width = scale * source
    if mode == "align_corners":
        return 0.0 if width == 1 else x * (source - 1) / (width - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        begin, end = axis.roi
        if width == 1:
            return (begin + end) * (source - 1) / 2
        return begin * (source - 1) + x * (end - begin) * (source - 1) / (width - 1)
    if mode == "pytorch_half_pixel" and width == 1:
        return -0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return source / 2 * (1 - axis.target / width) + (x + 0.5) / scale - 0.5
    raise Refused(f"the coordinate transformation {mode} is not known")


def _row(x: float, axis: Axis, how: Interpolation) -> tuple[Sequence[int], Sequence[float]]:
    """Indices, which may lie outside, and weights."""
    base = math.ceil(x) - 1
    ratio = x - base  # in (0, 1]
    if how.mode == "nearest":
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
