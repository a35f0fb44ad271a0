"""Rows, heads and matrices of a product of two activations of any element type: accesses and element indices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Spatial
from codegen_c.operators.kinds import Array, MatmulShape
from tvm_ext.core.row_access import RowAccess


def places(shape: MatmulShape) -> Array:
    """Return the indices of the second tensor's elements, int64[heads, depth, columns]."""
    heads, columns, depth = (
        np.arange(extent) * step
        for extent, step in zip((shape.heads, shape.columns, shape.depth), shape.steps, strict=True)
    )
    return heads[:, np.newaxis, np.newaxis] + depth[:, np.newaxis] + columns


def sums_of(shape: MatmulShape, first: Array, second: Array) -> Array:
    """Return the products [*outer, columns] of whole tensors of any shape, summed in their own type."""
    subscripts = "rhc,hcn->rhn" if shape.heads_inside else "hrc,hcn->hrn"
    return np.einsum(subscripts, first.reshape(*shape.outer, shape.depth), second.reshape(-1)[places(shape)])


def spatial(shape: MatmulShape, num_same_row: int = 0) -> Spatial:
    """Return the row behaviour: a row is all heads of a vector, or if heads are the outer axis, all vectors of a head.

    The second input is read whole, further inputs row by row.
    """
    rows = shape.outer[0]
    same = RowAccess.same(rows)
    return Spatial(output_rows=rows, inputs=(same, RowAccess.whole(rows), *(same,) * num_same_row))


def head_by_head(shape: MatmulShape, num_same_row: int = 0) -> Spatial:
    """Return the row behaviour of a kernel that computes all rows of one head before those of the next head."""
    return replace(spatial(shape, num_same_row), rows_still_read=shape.rows if shape.heads_inside else 0)
