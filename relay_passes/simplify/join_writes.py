"""Replace writes to a constant part of a tensor by a concat of the parts, which kernels copy at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    infer,
    live,
    map_dataflow,
    op_name,
    outputs,
    rebuild,
    static_shape,
    with_span,
)


@tvm.transform.module_pass(opt_level=0, name="JoinWrites")
class JoinWrites:
    """Replace a write to a range of indices of one axis by a concat.

    Rewrite:
        y = scatter_nd(x, indices of x[:, 2:6], u)      ->  z = concat(x[:, 0:2], u, v) along axis 1
        z = slice_scatter(y, v, 6, 16, axis=1)
        Writes one after the other become one concat, and what a later write replaces is not copied.
    Leaves alone: indices that are not constant, are not in order or are no range of one axis; steps other than 1;
        reductions; and writes of the whole tensor.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _joined)


@dataclass(frozen=True, kw_only=True)
class _Write:
    """A write of `value` to [begin, end) of an axis of `target`."""

    target: relax.Expr
    value: relax.Expr
    axis: int
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Indices [begin, end) of an axis, which are those from `offset` of `source`."""

    source: relax.Expr
    begin: int
    end: int
    offset: int

    def within(self, begin: int, end: int) -> Iterator[_Part]:
        """Yield what of the part lies in a range, if anything does."""
        first, last = max(begin, self.begin), min(end, self.end)
        if first < last:
            yield _Part(source=self.source, begin=first, end=last, offset=self.offset + first - self.begin)


def _joined(func: relax.Function) -> relax.Function:
    parts: dict[relax.Expr, tuple[int, list[_Part]]] = {}
    sequence: list[relax.VarBinding] = []
    for binding in bindings(func):
        write = _write(binding.value)
        if write is None:
            sequence.append(binding)
            continue
        size = static_shape(write.target)[write.axis]
        axis, known = parts.get(write.target, (write.axis, []))
        before = known if known and axis == write.axis else [_Part(source=write.target, begin=0, end=size, offset=0)]
        shape = (*static_shape(write.target)[: write.axis], write.end - write.begin,
                 *static_shape(write.target)[write.axis + 1 :])  # fmt: skip
        value = write.value
        if static_shape(value) != shape:
            value = _bound(sequence, f"{binding.var.name}.written", relax.op.reshape(value, shape))
        written = _Part(source=value, begin=write.begin, end=write.end, offset=0)
        after = [
            *(kept for part in before for kept in part.within(0, write.begin)), written,
            *(kept for part in before for kept in part.within(write.end, size)),
        ]  # fmt: skip
        parts[binding.var] = write.axis, after
        pieces = [_piece(sequence, f"{binding.var.name}.kept", part, write.axis) for part in after]
        joined = infer(relax.op.concat(pieces, axis=write.axis))
        sequence.append(relax.VarBinding(binding.var, with_span(joined, binding.value.span)))
    return rebuild(func, live(sequence, outputs(func))) if parts else func


def _bound(sequence: list[relax.VarBinding], name: str, value: relax.Expr) -> relax.Var:
    value = infer(value)
    var = relax.DataflowVar(name, value.ty)
    sequence.append(relax.VarBinding(var, value))
    return var


def _piece(sequence: list[relax.VarBinding], name: str, part: _Part, axis: int) -> relax.Expr:
    extent = part.end - part.begin
    if extent == static_shape(part.source)[axis]:
        return part.source
    return _bound(
        sequence, name, relax.op.strided_slice(part.source, [axis], [part.offset], [part.offset + extent])
    )  # fmt: skip


def _write(call: relax.Expr) -> _Write | None:
    """Return the write to a range of one axis that a call is; None for any other value."""
    found = None
    if op_name(call) == "relax.slice_scatter":
        target, value, *bounds = call.args
        if all(isinstance(bound, tvm.tirx.IntImm) for bound in bounds) and int(bounds[2]) == 1:
            found = int(call.attrs.axis) % len(static_shape(target)), int(bounds[0]), int(bounds[1])
    elif op_name(call) == "relax.scatter_nd" and str(call.attrs.reduction) == "update":
        target, indices, value = call.args
        tuples = array_of(indices)
        found = None if tuples is None else _range(tuples, static_shape(target))
    if found is None:
        return None
    axis, begin, end = found
    if not 0 <= begin < end or end - begin == static_shape(target)[axis]:
        return None
    return _Write(target=target, value=value, axis=axis, begin=begin, end=end)


def _range(indices: np.ndarray, shape: Sequence[int]) -> tuple[int, int, int] | None:
    """Return axis, begin and end where index tuples [..., axes] address a range of one axis and all of the others, in
    order; None for any others.
    """
    axes = indices.shape[-1]
    tuples = indices.reshape(-1, axes)
    if not tuples.size:
        return None
    tuples = np.where(tuples < 0, tuples + np.array(shape[:axes]), tuples)
    begins, ends = tuples.min(axis=0), tuples.max(axis=0) + 1
    partial = [axis for axis in range(axes) if (begins[axis], ends[axis]) != (0, shape[axis])]
    if len(partial) != 1 or len(tuples) != np.prod(ends - begins):
        return None
    grid = np.indices(ends - begins).reshape(axes, -1).T + begins
    (axis,) = partial
    return (axis, int(begins[axis]), int(ends[axis])) if np.array_equal(tuples, grid) else None
