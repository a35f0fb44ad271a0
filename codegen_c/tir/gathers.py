"""Elements along an axis at places that a tensor holds; places beyond the axis are for others to mend (indices.py)."""

from __future__ import annotations

from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops.common import LegalizeFunc


def take(data: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """`data` with the axes of `indices` in place of one axis."""
    along, rank = axis % len(data.shape), len(indices.shape)

    def element(*axes: tirx.Var) -> tirx.Expr:
        return data(*axes[:along], indices(*axes[along : along + rank]), *axes[along + rank :])

    shape = [*data.shape[:along], *indices.shape, *data.shape[along + 1 :]]
    return te.compute(shape, element, "T_take", tag="injective")


def _legalize(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axis, mode = call.attrs.axis, str(call.attrs.mode)
    if axis is None or mode != "fast":
        return bb.call_te(topi.take, *call.args, axis, mode=mode)
    return bb.call_te(take, *call.args, int(axis))


LEGALIZE: dict[str, LegalizeFunc] = {"relax.take": _legalize}
"""In place of TVM's own, which warns on the user's terminal of reads beyond the end that do not happen here."""
