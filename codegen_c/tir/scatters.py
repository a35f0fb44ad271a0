"""Updates of elements at places that a tensor holds, in its order: of two for one place, the later one counts last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tvm import relax, te, tirx, topi
from tvm.relax.transform.legalize_ops.common import LegalizeFunc
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

REDUCTIONS: dict[str, Callable[[tirx.Expr, tirx.Expr], tirx.Expr]] = {
    "update": lambda _, update: update,
    "add": lambda element, update: element + update,
    "mul": lambda element, update: element * update,
    "min": lambda element, update: tirx.Min(element, update),
    "max": lambda element, update: tirx.Max(element, update),
}
"""Names that Relax has for it, and the element that comes of one and its update."""

Place = Callable[[T.buffer_proxy, Sequence[tirx.Expr]], Sequence[tirx.Expr]]


def scatter_elements(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str) -> te.Tensor:
    """`data` with `updates` at `indices` along one axis; indices [as updates], those below 0 counted from the end."""
    along = axis % len(data.shape)

    def place(places: T.buffer_proxy, axes: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        index = places[tuple(axes)]
        counted = _counted(index, int(data.shape[along]))
        return [counted if axis == along else var for axis, var in enumerate(axes)]

    return _scattered(data, indices, updates, place, reduction)


def _counted(index: tirx.Expr, extent: int) -> tirx.Expr:
    """An index below 0 counted from the end; one inside, which most are, is told by one comparison without a sign."""
    dtype = str(index.ty.dtype)
    unsigned = dtype if dtype.startswith("uint") else f"u{dtype}"
    is_inside = tirx.Cast(unsigned, index) < tirx.const(extent, unsigned)
    return tirx.Select(is_inside, index, index + tirx.const(extent, dtype))


def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str) -> te.Tensor:
    """`data` with slices of `updates` at `indices`, whose last axis holds places along the first axes of `data`."""
    tuples, length = len(indices.shape) - 1, int(indices.shape[-1])

    def place(places: T.buffer_proxy, axes: Sequence[tirx.Expr]) -> list[tirx.Expr]:
        return [*(places[(*axes[:tuples], part)] for part in range(length)), *axes[tuples:]]

    return _scattered(data, indices, updates, place, reduction)


def _scattered(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, place: Place, reduction: str) -> te.Tensor:
    reduce = REDUCTIONS[reduction]

    def loops(source: tirx.Buffer, places: tirx.Buffer, given: tirx.Buffer, result: tirx.Buffer) -> tirx.Stmt:
        elements, kept, update = T.buffer_proxy(result), T.buffer_proxy(source), T.buffer_proxy(given)

        def copy(axes: tuple[tirx.Expr, ...]) -> None:
            elements[axes] = kept[axes]

        def change(axes: tuple[tirx.Expr, ...]) -> None:
            target = tuple(place(T.buffer_proxy(places), axes))
            elements[target] = reduce(elements[target], update[axes])

        return tirx.SeqStmt([_nest(data.shape, copy), _nest(updates.shape, change)])

    return te.extern(
        [data.shape], [data, indices, updates], lambda ins, outs: loops(*ins, *outs),
        dtype=str(data.dtype), name="scatter",
    )  # fmt: skip


def _nest(shape: Sequence[tirx.Expr], body: Callable[[tuple[tirx.Expr, ...]], None]) -> tirx.Stmt:
    """Loops over a shape, each within the one before; body takes their counters."""
    with IRBuilder() as builder, ExitStack() as stack:
        body(tuple(stack.enter_context(T.serial(0, int(extent))) for extent in shape))
        stack.close()
        return builder.get()


def _legalize_elements(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    reduction = str(call.attrs.reduction)
    definition = scatter_elements if reduction in REDUCTIONS else topi.scatter_elements  # means need counts
    return bb.call_te(definition, *call.args, int(call.attrs.axis), reduction)


def _legalize_tuples(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return bb.call_te(scatter_nd, *call.args, str(call.attrs.reduction))


LEGALIZE: dict[str, LegalizeFunc] = {
    "relax.scatter_elements": _legalize_elements,
    "relax.scatter_nd": _legalize_tuples,
}
