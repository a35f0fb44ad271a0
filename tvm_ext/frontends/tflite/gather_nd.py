"""GATHER_ND: elements or slices of a tensor at places that the last axis of the indices spells out."""

from __future__ import annotations

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, constant, infer, static_shape
from tvm_ext.frontends.refusals import Refused


def gather_nd(data: relax.Expr, indices: relax.Expr) -> relax.Expr:
    """data[indices[..., 0], indices[..., 1], ...]. Raises Refused for constant indices that lie outside.

    TVM's own converter turns the indices first, which Relax's operator does not want.
    """
    shape, depth = static_shape(data), static_shape(indices)[-1] if static_shape(indices) else 0
    if not 1 <= depth <= len(shape):
        raise Refused(f"its indices have {depth} numbers for each place; its data has rank {len(shape)}")
    known = array_of(indices)
    if known is not None:
        if (known < 0).any() or (known >= np.array(shape[:depth])).any():
            raise Refused(f"an index lies outside {list(shape[:depth])}")
        return relax.op.gather_nd(data, constant(known.astype(np.int64)))
    return relax.op.gather_nd(data, infer(relax.op.astype(indices, "int64")))
