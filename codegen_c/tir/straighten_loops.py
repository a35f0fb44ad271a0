"""Innermost loops that read or write at places of a bent sequence, as loops whose places step evenly.

    for i in 0..60: y[i] = x[i / 2]                      ->  for i in 0..30: for j in 0..2: y[i * 2 + j] = x[i]
    for i in 0..34: y[i] = x[i < 2 ? 2 - i : i - 2]      ->  for i in 0..3: y[i] = x[2 - i]; for i in 0..31: ...
No element is computed otherwise, or in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from codegen_c.tir.evaluate import Unknown, values_of
from codegen_c.tir.loops import operands_of

MOST_PARTS = 3
"""Loops behind each other that one may become: a reflected row has three."""
MOST_TURNS = 1 << 14
"""Turns of a loop whose places are looked at."""
_EVEN = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Cast, tirx.IntImm, Var)


def straighten_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with such loops nested, or cut at the bends."""
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, _straightened)]))


def _straightened(loop: tirx.For) -> tirx.Stmt:
    known = isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)
    known = known and int(loop.extent) <= MOST_TURNS
    if not known or int(loop.min) or loop.step is not None or loop.kind != tirx.ForKind.SERIAL or _inner(loop):
        return loop
    bent = _bent(loop)
    if not bent:
        return loop
    turns = int(loop.extent)
    for columns in (number for number in range(turns // 2, 1, -1) if turns % number == 0):
        if all(_is_even(values.reshape(-1, columns)) for _, values in bent):
            return _nested(loop, bent, columns)
    ends = sorted({0, turns, *(place for _, values in bent for place in _bends(values))})
    if len(ends) > MOST_PARTS + 1:
        return loop
    return tirx.SeqStmt([_part(loop, bent, low, high) for low, high in pairwise(ends)])


def _inner(loop: tirx.For) -> list[tirx.For]:
    inner: list[tirx.For] = []
    tvm_ffi.structural_walk(loop.body, [(tirx.For, inner.append)])
    return inner


Bent = list[tuple[Expr, np.ndarray]]
"""Parts of indices that do not step evenly, and their values in each turn."""


def _bent(loop: tirx.For) -> Bent:
    indices: list[Expr] = []
    tvm_ffi.structural_walk(
        loop.body,
        [
            (TensorLoad, lambda load: indices.extend(load.indices)),
            (tirx.BufferStore, lambda store: indices.extend(store.indices)),
        ],
    )
    turns = np.arange(int(loop.extent))
    found: Bent = []
    for expr in (part for index in indices for part in _parts(index, loop.loop_var)):
        try:
            found.append((expr, values_of(expr, loop.loop_var, turns)))
        except Unknown:
            return []
    return found


def _parts(expr: Expr, counter: Var) -> Iterator[Expr]:
    """Largest parts of an index that depend on the counter alone, and not evenly."""
    read: set[Var] = set()
    loads: list[TensorLoad] = []
    others: list[Expr] = []
    tvm_ffi.structural_walk(
        expr,
        [
            (Var, read.add),
            (TensorLoad, loads.append),
            (Expr, lambda part: others.append(part) if not isinstance(part, _EVEN) else None),
        ],
    )
    if counter not in read or not others:
        return
    if len(read) == 1 and not loads:
        yield expr
    elif not isinstance(expr, TensorLoad):
        for operand in operands_of(expr):
            yield from _parts(operand, counter)


def _is_even(values: np.ndarray) -> bool:
    """True where values step evenly along both axes."""
    return all(not np.diff(np.diff(values, axis=axis), axis=other).any() for axis, other in ((0, 0), (1, 1), (0, 1)))


def _bends(values: np.ndarray) -> Iterator[int]:
    """First places of runs that step evenly."""
    begin = 0
    while begin + 1 < len(values):
        steps = np.diff(values[begin:])
        other = np.flatnonzero(steps != steps[0])
        if not other.size:
            return
        begin += int(other[0]) + 1
        yield begin


def _nested(loop: tirx.For, bent: Bent, columns: int) -> tirx.For:
    outer, inner = _counter(loop), _counter(loop)
    rows = int(loop.extent) // columns

    def straight(values: np.ndarray) -> Expr:
        table = values.reshape(rows, columns)
        return _even(outer, table[:, 0]) + _even(inner, table[0] - table[0, 0])

    body = _with(loop, bent, outer * columns + inner, straight)
    within = tirx.For(inner, _like(loop, 0), _like(loop, columns), loop.kind, body)
    return tirx.For(outer, _like(loop, 0), _like(loop, rows), loop.kind, within)


def _part(loop: tirx.For, bent: Bent, low: int, high: int) -> tirx.For:
    """Its turns from low to high, counted from zero."""
    counter = _counter(loop)
    place = counter + _like(loop, low) if low else counter
    body = _with(loop, bent, place, lambda values: _even(counter, values[low:high]))
    return tirx.For(counter, _like(loop, 0), _like(loop, high - low), loop.kind, body)


def _with(loop: tirx.For, bent: Bent, place: Expr, straight: Callable[[np.ndarray], Expr]) -> tirx.Stmt:
    """The loop's body with `place` for its counter, and for bent parts what they are there."""

    def straightened(expr: Expr) -> Expr:
        for known, values in bent:
            if tvm_ffi.structural_equal(expr, known):
                return tirx.Cast(str(expr.ty.dtype), straight(values))
        return expr

    body = tvm_ffi.structural_map(loop.body, [(Expr, straightened)])
    return tvm_ffi.structural_map(body, [(Var, lambda var: place if var.same_as(loop.loop_var) else var)])


def _even(counter: Var, values: np.ndarray) -> Expr:
    dtype = str(counter.ty.dtype)
    step = int(values[1] - values[0]) if len(values) > 1 else 0
    return counter * tirx.IntImm(dtype, step) + tirx.IntImm(dtype, int(values[0]))


def _counter(loop: tirx.For) -> Var:
    return Var(loop.loop_var.name, loop.loop_var.ty)


def _like(loop: tirx.For, number: int) -> tirx.IntImm:
    return tirx.IntImm(str(loop.loop_var.ty.dtype), number)
