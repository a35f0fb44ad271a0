"""take, multiply by one number per element of an axis, and add, as one matrix per axis of a tensor.

Element [i, j, ...] of the result is the sum over all a, b, ... of matrix0[i, a] * matrix1[j, b] * ... * x[a, b, ...].
"""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Call

LONGEST_AXIS = 4096
"""Limit on an axis: a matrix has as many elements as its square."""


def matrices_after(call: Call, known: list[list[np.ndarray]], arrays: list[np.ndarray]) -> list[np.ndarray] | None:
    """The matrices after a call, from those of its operands."""
    if call.name == "take" and len(known) == 1 and len(arrays) == 1 and call.attrs.axis is not None:
        axis = int(call.attrs.axis) % len(known[0])
        return [matrix[arrays[0]] if i == axis else matrix for i, matrix in enumerate(known[0])]
    if call.name == "multiply" and len(known) == 1 and len(arrays) == 1:
        rank, factors = len(known[0]), arrays[0]
        shape = (1,) * (rank - factors.ndim) + factors.shape
        axis = int(np.argmax(shape))
        if sum(extent > 1 for extent in shape) > 1:
            return None
        column = np.broadcast_to(factors.reshape(-1), known[0][axis].shape[0])[:, np.newaxis]
        return [matrix * column if i == axis else matrix for i, matrix in enumerate(known[0])]
    if call.name == "add" and len(known) == 2:
        pairs = list(zip(*known, strict=True))
        other = [i for i, (a, b) in enumerate(pairs) if not np.array_equal(a, b)]
        if len(other) != 1:
            return None
        return [a + b if i == other[0] else a for i, (a, b) in enumerate(pairs)]
    return None


def images_of(matrices: list[np.ndarray]) -> tuple[int, int, int] | None:
    """(extents before, index of the rows' axis, extents after) of two neighbouring axes beside which none changes."""
    fixed = [m.shape[0] == m.shape[1] and np.array_equal(m, np.eye(len(m), dtype=m.dtype)) for m in matrices]
    changed = [axis for axis, same in enumerate(fixed) if not same]
    if len(matrices) < 2 or not changed or changed[-1] - changed[0] > 1:
        return None
    # A channel axis at the end stays where it is.
    row = (
        min(changed[0], len(matrices) - 2) if len(changed) == 2 or len(matrices) != 4 else (1 if changed[0] < 3 else 2)
    )
    extents = [len(matrix) for matrix in matrices]
    return int(np.prod(extents[:row], dtype=np.int64)), row, int(np.prod(extents[row + 2 :], dtype=np.int64))


def taps_of(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights of the elements each row of a matrix adds up; rows of fewer repeat the last, weighted zero."""
    chosen = [np.flatnonzero(row) if row.any() else np.zeros(1, np.int64) for row in matrix]
    count = max(len(places) for places in chosen)
    weights = [np.pad(row[places], (0, count - len(places))) for row, places in zip(matrix, chosen, strict=True)]
    return np.array([np.pad(places, (0, count - len(places)), "edge") for places in chosen]), np.array(weights)
