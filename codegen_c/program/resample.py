"""Resampling of a linked value along the axes in which the shapes of both ends differ.

Element `i` of `size` target elements lies at (i + 0.5) * source size / size - 0.5 among the source's elements, limited
to the first and the last one: as in ONNX's Resize with `half_pixel`, and TFLite's with `half_pixel_centers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Array = np.ndarray
Resizing = Literal["nearest", "linear"]
MOST_AXES = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class ResampledAxis:
    """An axis of the source with its elements for each target element.

    size: of the source. first: int64[target size], index of the element, or of the first of two. parts: float32[target
    size], weight of the second element; None where each target element is one source element.
    """

    axis: int
    size: int
    first: Array
    parts: Array | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Resample:
    """Resampled axes of a source with this shape, at most two, in order."""

    shape: tuple[int, ...]
    axes: tuple[ResampledAxis, ...]

    @property
    def interpolates(self) -> bool:
        """True if target elements lie between source elements, so the source needs real values."""
        return any(axis.parts is not None for axis in self.axes)

    @property
    def name(self) -> Resizing:
        """The kind of resampling, as the bundle's file names it."""
        return "linear" if self.interpolates else "nearest"

    @property
    def constant_bytes(self) -> int:
        """Size of the tables: indices of 2 or 4 B, and weights of 4 B."""
        indices = sum(axis.first.size * np.dtype(index_type(axis)).itemsize for axis in self.axes)
        return indices + sum(axis.parts.nbytes for axis in self.axes if axis.parts is not None)

    def reference(self, elements: Array, zero_point: int = 0) -> Array:
        """Return the target's elements, one after the other, bit for bit as the C computes them.

        They have the source's type, and float32 after interpolation, which subtracts the zero point of integers first.
        """
        found = elements.reshape(self.shape)
        if self.interpolates and found.dtype != np.float32:
            found = (found.astype(np.int32) - zero_point).astype(np.float32)
        for axis in reversed(self.axes):
            one = np.take(found, axis.first, axis.axis)
            if axis.parts is not None:
                other = np.take(found, axis.first + 1, axis.axis)
                parts = axis.parts.reshape([-1 if i == axis.axis else 1 for i in range(found.ndim)])
                one = one + (other - one) * parts
            found = one
        return found.reshape(-1)


def resample_of(source: Sequence[int], target: Sequence[int], resizing: Resizing) -> Resample | str:
    """Return the resampling between two shapes, which differ, or the reason why there is none."""
    if len(source) != len(target):
        return f"only sizes of axes can be resampled, not {len(source)} axes to {len(target)}"
    axes = [axis for axis, (one, other) in enumerate(zip(source, target, strict=True)) if one != other]
    if len(axes) > MOST_AXES:
        return f"{len(axes)} axes differ, and at most {MOST_AXES} can be resampled"
    return Resample(shape=tuple(source), axes=tuple(_axis(axis, source[axis], target[axis], resizing) for axis in axes))


def index_type(axis: ResampledAxis) -> Literal["uint16", "uint32"]:
    """Return the type of an axis's indices in C."""
    return "uint16" if axis.size <= 1 << 16 else "uint32"


def _axis(axis: int, size: int, target: int, resizing: Resizing) -> ResampledAxis:
    places = (np.arange(target) + 0.5) * (size / target) - 0.5
    if resizing == "nearest" or size == 1:
        nearest = np.clip(np.ceil(places - 0.5), 0, size - 1).astype(np.int64)
        return ResampledAxis(axis=axis, size=size, first=nearest, parts=None)
    places = np.clip(places, 0, size - 1)
    first = np.minimum(np.floor(places), size - 2).astype(np.int64)
    return ResampledAxis(axis=axis, size=size, first=first, parts=(places - first).astype(np.float32))
