"""Zeros around an image that a sum of products does not add: they change no bit of it where the weights are finite.

    sum += (inside ? x[...] : 0) * w[...]  ->  if (inside) sum += x[...] * w[...]
A sum that begins with +0 is never -0, so adding a zero of either sign leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var

from codegen_c.tir.ranges import reads_elements

LEAST_SKIPPED = 24
"""Summands from which on a comparison is less than what an FPU computes: fewer compilers write behind each other, and
compare once for several."""


def skip_zeros(function: tirx.PrimFunc, constants: Sequence[np.ndarray], *, least_summands: int = 0) -> tirx.PrimFunc:
    """The function without such additions; its last parameters are the constants.

    least_summands: of a sum of products that they are left out of.
    """
    finite = {
        var
        for var, data in zip(function.params[len(function.params) - len(constants) :], constants, strict=True)
        if data.dtype.kind == "f" and np.isfinite(data).all()
    }
    views: dict[Var, Var] = {}
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(
        function.body,
        [
            (tirx.DeclBuffer, lambda view: views.update({view.buffer: view.data.args[0]})),
            (tirx.BufferStore, stores.append),
        ],
    )
    finite |= {view for view, data in views.items() if data in finite}
    sums = {store.buffer for store in stores} - {store.buffer for store in stores if not _keeps_sum(store)}

    short = _short_sums(function.body, least_summands) if least_summands else set[Var]()

    def changed(store: tirx.BufferStore) -> tirx.Stmt:
        is_short = store.buffer in short and isinstance(_added(store), tirx.Mul)
        return _guarded(store, finite) if store.buffer in sums and not is_short else store

    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.BufferStore, changed)]))


def _short_sums(body: tirx.Stmt, least_summands: int) -> set[Var]:
    """Variables that fewer summands are added to, by the loops inside of the one where the sum begins."""
    turns: dict[Var, int] = {}

    def inside(statement: tirx.Stmt, times: int, begun: set[Var]) -> None:
        if isinstance(statement, tirx.SeqStmt):
            new = {part.buffer for part in statement.seq if isinstance(part, tirx.BufferStore)}
            for part in statement.seq:
                inside(part, 1 if new else times, new or begun)
        elif isinstance(statement, tirx.For):
            known = isinstance(statement.extent, tirx.IntImm)
            inside(statement.body, times * int(statement.extent) if known else least_summands, begun)
        elif isinstance(statement, tirx.BufferStore) and statement.buffer in begun:
            turns[statement.buffer] = max(turns.get(statement.buffer, 0), times)

    inside(body, 1, set())
    return {buffer for buffer, times in turns.items() if times < least_summands}


def _keeps_sum(store: tirx.BufferStore) -> bool:
    """True for the +0 that a sum begins with, and for a sum that goes on."""
    value = store.value
    if isinstance(value, tirx.FloatImm):
        return float(value.value) == 0.0 and not np.signbit(float(value.value))
    return _added(store) is not None


def _added(store: tirx.BufferStore) -> Expr | None:
    """Summand that a store adds to the stored element; None for another store."""
    value = store.value
    if not isinstance(value, tirx.Add) or not str(value.ty.dtype).startswith("float"):
        return None
    kept = value.a
    is_stored = isinstance(kept, TensorLoad) and kept.source.same_as(store.buffer)
    return value.b if is_stored and tvm_ffi.structural_equal(kept.indices, store.indices) else None


def _guarded(store: tirx.BufferStore, finite: set[Var]) -> tirx.Stmt:
    added = _added(store)
    factors = (added.a, added.b) if isinstance(added, tirx.Mul) else (added,)
    for place, factor in enumerate(factors):
        chosen = None if factor is None else _chosen(factor)
        others = [other for index, other in enumerate(factors) if index != place]
        if chosen is not None and all(_is_finite(other, finite) for other in others):
            condition, inside = chosen
            kept = [inside if index == place else other for index, other in enumerate(factors)]
            whole = tirx.Mul(*kept) if others else inside
            goes_on = tirx.BufferStore(store.buffer, store.value.a + whole, store.indices)
            return tirx.IfThenElse(condition, goes_on, None)
    return store


def _chosen(expr: Expr) -> tuple[Expr, Expr] | None:
    """Condition of counters, and what it chooses instead of zero."""
    if isinstance(expr, tirx.Select):
        condition, inside, outside = expr.condition, expr.true_value, expr.false_value
    elif isinstance(expr, Call) and expr.op.name.endswith(".if_then_else"):
        condition, inside, outside = expr.args
    else:
        return None
    is_zero = isinstance(outside, tirx.FloatImm) and float(outside.value) == 0.0
    return (condition, inside) if is_zero and not reads_elements(condition) else None


def _is_finite(expr: Expr, finite: set[Var]) -> bool:
    if isinstance(expr, tirx.FloatImm):
        return bool(np.isfinite(expr.value))
    return isinstance(expr, TensorLoad) and expr.source in finite
