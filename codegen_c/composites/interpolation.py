"""Read an interpolation of an image from calls of take, multiply and add, as one matrix of weights for each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from codegen_c.composites.graph import Call, NoMatch
from codegen_c.operators.kinds import Array

LONGEST_AXIS = 4096
"""Longest axis of an interpolation, whose matrix has as many elements as the square of the axis."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageTaps:
    """An interpolation of images: indices and weights of rows and of columns, [target, taps] each.

    before, after: shapes of the images, [N, H, W, C] and [N, P, Q, C].
    """

    before: tuple[int, int, int, int]
    after: tuple[int, int, int, int]
    rows: tuple[Array, Array]
    columns: tuple[Array, Array]


def image_taps(
    calls: Sequence[Call], source: relax.Var, shapes: tuple[Sequence[int], Sequence[int]], result: relax.Var
) -> ImageTaps | NoMatch:
    """Return the interpolation that calls compute. shapes: of the source and of the result."""
    if max(*shapes[0], *shapes[1], 1) > LONGEST_AXIS:
        return NoMatch(f"has an axis of more than {LONGEST_AXIS} elements")
    # The source is a weighted sum of itself: one identity matrix for each axis.
    values = {source: [np.eye(extent, dtype=np.float32) for extent in shapes[0]]}
    for call in calls:
        known = [values[value.var] for value in call.operands if value.var in values]
        arrays = [value.array for value in call.operands if value.array is not None]
        made = matrices_after(call, known, arrays)
        if made is None:
            return NoMatch("is not a sum of elements along each axis")
        values[call.var] = made
    matrices = values[result]
    images = images_of(matrices)
    if images is None:
        return NoMatch("interpolates along other axes than rows and columns")
    before, row, after = images
    rows, columns = matrices[row], matrices[row + 1]
    return ImageTaps(
        before=(before, rows.shape[1], columns.shape[1], after), after=(before, rows.shape[0], columns.shape[0], after),
        rows=taps_of(rows), columns=taps_of(columns),
    )  # fmt: skip


def matrices_after(call: Call, known: list[list[np.ndarray]], arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """Return the matrices after a call, computed from the matrices of its operands."""
    if call.name == "take" and len(known) == 1 and len(arrays) == 1 and call.attrs.axis is not None:
        axis, places = int(call.attrs.axis) % len(known[0]), arrays[0]
        # Indices may be an activation and the elements a constant; one index takes its axis away.
        if call.operands[0].array is not None or places.ndim != 1 or not _are_inside(places, len(known[0][axis])):
            return None
        return [matrix[places] if i == axis else matrix for i, matrix in enumerate(known[0])]
    if call.name == "multiply" and len(known) == 1 and len(arrays) == 1 and arrays[0].ndim <= len(known[0]):
        rank, factors = len(known[0]), arrays[0]
        shape = (1,) * (rank - factors.ndim) + factors.shape
        axis = int(np.argmax(shape))
        extent = len(known[0][axis])
        if sum(size > 1 for size in shape) > 1 or shape[axis] not in (1, extent):
            return None
        column = np.broadcast_to(factors.reshape(-1), extent)[:, np.newaxis]
        return [matrix * column if i == axis else matrix for i, matrix in enumerate(known[0])]
    if call.name == "add" and len(known) == 2 and len(known[0]) == len(known[1]):
        pairs = list(zip(*known, strict=True))
        other = [i for i, (a, b) in enumerate(pairs) if not np.array_equal(a, b)]
        if len(other) != 1 or pairs[other[0]][0].shape != pairs[other[0]][1].shape:
            return None
        return [a + b if i == other[0] else a for i, (a, b) in enumerate(pairs)]
    return None


def _are_inside(places: np.ndarray, extent: int) -> bool:
    return bool(((places >= 0) & (places < extent)).all())


def images_of(matrices: list[np.ndarray]) -> tuple[int, int, int] | None:
    """Return two adjacent axes that contain all axes that change, as rows and columns of images.

    The result is (product of the extents before, index of the row axis, product of the extents after), or None.
    """
    fixed = [m.shape[0] == m.shape[1] and np.array_equal(m, np.eye(len(m), dtype=m.dtype)) for m in matrices]
    changed = [axis for axis, same in enumerate(fixed) if not same]
    if len(matrices) < 2 or not changed or changed[-1] - changed[0] > 1:
        return None
    # If only one axis changes, rows and columns are chosen so that a channel axis at the end is not one of them.
    row = (
        min(changed[0], len(matrices) - 2) if len(changed) == 2 or len(matrices) != 4 else (1 if changed[0] < 3 else 2)
    )
    extents = [len(matrix) for matrix in matrices]
    return int(np.prod(extents[:row], dtype=np.int64)), row, int(np.prod(extents[row + 2 :], dtype=np.int64))


def taps_of(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices and weights of the elements that each row of a matrix adds up.

    A row with fewer elements repeats its last index with weight 0.
    """
    chosen = [np.flatnonzero(row) if row.any() else np.zeros(1, np.int64) for row in matrix]
    count = max(len(places) for places in chosen)
    weights = [np.pad(row[places], (0, count - len(places))) for row, places in zip(matrix, chosen, strict=True)]
    return np.array([np.pad(places, (0, count - len(places)), "edge") for places in chosen]), np.array(weights)
