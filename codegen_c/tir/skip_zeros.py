"""Skip the zeros around an image in a sum of products: with finite weights they change no bit of the sum.

    sum += (inside ? x[...] : 0) * w[...]  ->  if (inside) sum += x[...] * w[...]
A sum that begins with +0 is never -0, so adding a zero of either sign does not change it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var

from codegen_c.tir.ranges import reads_elements

LEAST_SKIPPED = 24
"""Summands above which a comparison costs less than the FPU's additions. Compilers unroll shorter sums, and compare
once for several summands."""


def skip_zeros(function: tirx.PrimFunc, constants: Sequence[np.ndarray], *, least_summands: int = 0) -> tirx.PrimFunc:
    """Return the function without additions of zeros; its last parameters are the constants.

    least_summands: number of summands below which a sum keeps its zeros.
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
    """Return the variables with fewer summands, counted by the loops inside the one where the sum begins."""
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
    """Return True for the +0 that a sum begins with, and for an addition to the sum."""
    value = store.value
    if isinstance(value, tirx.FloatImm):
        return float(value.value) == 0.0 and not np.signbit(float(value.value))
    return _added(store) is not None


def _added(store: tirx.BufferStore) -> Expr | None:
    """Return the summand that a store adds to the stored element; None for other stores."""
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
    """Return a condition on counters, and the value that it selects instead of zero; None for other expressions."""
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
