"""A tensor resized by tables of taps: one loop nest for each axis."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax, te, tirx

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.sampling import Axis, Taps


def interpolated(
    bb: relax.BlockBuilder, x: relax.Expr, axes: Mapping[int, Axis], tables: Mapping[int, Taps]
) -> relax.Expr:
    """`x` with each axis that has a table as weighted sums of its elements."""
    # The axis that shrinks most comes first: less to do for the others.
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
    """True where each element of an axis stays as it is."""
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
