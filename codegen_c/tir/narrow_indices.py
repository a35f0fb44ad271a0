"""Indices of 64 bits in 32, where counters and places that are known to lie inside of a buffer make them up."""

from __future__ import annotations

from collections.abc import Mapping

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

Bounds = tuple[int, int]
"""Least and largest value."""
_LIMIT = 1 << 31


def narrow_indices(function: tirx.PrimFunc, places: Mapping[Var, Bounds]) -> tirx.PrimFunc:
    """The function with such indices in 32 bits. places: bounds of variables, by their buffers of one element."""
    narrowing = _Narrowing(places)
    tvm_ffi.structural_walk(function.body, [(tirx.For, narrowing.counted)])
    changes = [(TensorLoad, narrowing.load), (tirx.BufferStore, narrowing.store)]
    return function.with_body(tvm_ffi.structural_map(function.body, changes))


class _Narrowing:
    def __init__(self, places: Mapping[Var, Bounds]) -> None:
        self._places = places
        self._counters: dict[Var, Bounds] = {}

    def counted(self, loop: tirx.For) -> None:
        if isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm) and loop.step is None:
            self._counters[loop.loop_var] = int(loop.min), int(loop.min) + int(loop.extent) - 1

    def load(self, load: TensorLoad) -> Expr:
        return tirx.BufferLoad(load.source, [self._index(index) for index in load.indices])

    def store(self, store: tirx.BufferStore) -> tirx.Stmt:
        return tirx.BufferStore(store.buffer, store.value, [self._index(index) for index in store.indices])

    def _index(self, index: Expr) -> Expr:
        narrow = self._narrow(index) if str(index.ty.dtype) == "int64" else None
        return index if narrow is None else narrow[0]

    def _narrow(self, expr: Expr) -> tuple[Expr, Bounds] | None:
        """An expression in 32 bits and its bounds; None where they are not known, or too large."""
        if isinstance(expr, tirx.Cast):
            return self._narrow(expr.value)
        if isinstance(expr, tirx.IntImm):
            found = tirx.IntImm("int32", int(expr) % _LIMIT), (int(expr), int(expr))
            return found if 0 <= int(expr) < _LIMIT else None
        if isinstance(expr, Var | TensorLoad) and str(expr.ty.dtype) == "int32":
            bounds = self._places.get(expr.source) if isinstance(expr, TensorLoad) else self._counters.get(expr)
            return None if bounds is None else (expr, bounds)
        if not isinstance(expr, tirx.Add | tirx.Sub | tirx.Mul):
            return None
        one, other = self._narrow(expr.a), self._narrow(expr.b)
        if one is None or other is None:
            return None
        bounds = _combined(type(expr), one[1], other[1])
        return (type(expr)(one[0], other[0]), bounds) if max(map(abs, bounds)) < _LIMIT else None


def _combined(kind: type, one: Bounds, other: Bounds) -> Bounds:
    if kind is tirx.Mul:
        ends = [left * right for left in one for right in other]
        return min(ends), max(ends)
    if kind is tirx.Sub:
        return one[0] - other[1], one[1] - other[0]
    return one[0] + other[0], one[1] + other[1]
