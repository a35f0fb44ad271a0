"""Hoist loads and calls that a loop does not change, and compute indices in 32 bits where that is safe.

    for i: for j: y[i * 30 + j] = x[p[i] * 30 + j]
      ->  for i: row = p[i] * 30; for j: y[i * 30 + j] = x[row + j]
A C compiler cannot do this itself, because the plan lets an output overlap an input, and because a function may set
`errno`. If an output overlaps an input, an element is read only in the iteration that stores the same element
(composite.py), so no hoisted load reads it. No value changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.tir.intrinsics import CHEAP_CALLS
from codegen_c.tir.loops import operands

_TYPES = ("float32", "float64", "int32", "int64")


@dataclass(frozen=True, kw_only=True, eq=False)
class Hoisted:
    """The function with hoisted variables. places: bounds of the variables that hold the begin of a row."""

    function: tirx.PrimFunc
    places: dict[Var, tuple[int, int]]


def hoist_loads(function: tirx.PrimFunc, num_inputs: int) -> Hoisted:
    """Return the function with loop-invariant expressions in variables; its first parameters are its inputs."""
    views: dict[Var, Var] = {}

    def viewed(view: tirx.DeclBuffer) -> None:
        views[view.buffer] = view.data.args[0]

    tvm_ffi.structural_walk(function.body, [(tirx.DeclBuffer, viewed)])
    parameters = set(function.params[:num_inputs])
    inputs = parameters | {buffer for buffer, data in views.items() if data in parameters}
    hoisting = _Hoisting(inputs)
    whole = function.with_body(hoisting.statement(function.body))
    return Hoisted(function=narrow_indices(whole, hoisting.places), places=hoisting.places)


class _Hoisting:
    """Rewriter that hoists expressions. places: bounds of 32-bit index variables."""

    def __init__(self, inputs: set[Var]) -> None:
        self._inputs = inputs
        self.places: dict[Var, tuple[int, int]] = {}

    def statement(self, statement: tirx.Stmt) -> tirx.Stmt:
        """Return the statement with hoisted expressions, outermost loops first."""
        if isinstance(statement, tirx.SeqStmt):
            return tirx.SeqStmt([self.statement(part) for part in statement.seq])
        if not isinstance(statement, tirx.For):
            return statement
        found = self._unchanged(statement)
        buffers = [self._variable(expr, statement.loop_var) for expr in found]
        loop = _replaced(statement, found, buffers)
        inner = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, self.statement(loop.body), step=loop.step)
        before: list[tirx.Stmt] = []
        for expr, buffer in zip(found, buffers, strict=True):
            before += [tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, _as(buffer, expr), [0])]
        return tirx.SeqStmt([*before, inner]) if before else inner

    def _variable(self, expr: Expr, counter: Var) -> Var:
        """Return a buffer of one element, of 32 bits for an index that is known to fit."""
        dtype = str(expr.ty.dtype)
        if dtype.startswith("float"):
            return tirx.decl_buffer((1,), dtype, f"{counter.name}_value")
        bound = Analyzer().const_int_bound(expr)
        fits = max(abs(bound.min_value), abs(bound.max_value)) < 1 << 31
        place = tirx.decl_buffer((1,), "int32" if fits else dtype, f"{counter.name}_place")
        if fits:
            self.places[place] = bound.min_value, bound.max_value
        return place

    def _unchanged(self, loop: tirx.For) -> list[Expr]:
        """Return the largest expressions that every iteration computes and that depend on no counter of the loop."""
        if not _has_turns(loop):
            return []
        counters = {loop.loop_var}
        tvm_ffi.structural_walk(loop.body, [(tirx.For, lambda inner: counters.add(inner.loop_var)),
                                            (tirx.Bind, lambda bind: counters.add(bind.var)),
                                            (tirx.AllocBuffer, lambda alloc: counters.add(alloc.buffer)),
                                            (tirx.BufferStore, lambda store: counters.add(store.buffer))])  # fmt: skip
        found: list[Expr] = []
        for expr in _always(loop.body):
            for part in self._parts(expr, counters):
                if not any(tvm_ffi.structural_equal(part, known) for known in found):
                    found.append(part)
        return found

    def _parts(self, expr: Expr, changing: set[Var]) -> Iterator[Expr]:
        read: set[Var] = set()
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(expr, [(Var, read.add), (TensorLoad, loads.append)])
        sources = {load.source for load in loads}
        calls: list[Call] = []
        tvm_ffi.structural_walk(expr, [(Call, lambda call: calls.append(call) if _is_function(call) else None)])
        if not sources & self._inputs and not (calls and loads):
            return
        if not (read | sources) & changing and str(expr.ty.dtype) in _TYPES:
            yield expr
            return
        always = (expr.a,) if isinstance(expr, tirx.And | tirx.Or) else operands(expr)[0]
        for operand in always:
            yield from self._parts(operand, changing)


def _has_turns(loop: tirx.For) -> bool:
    """Return True if the loop has at least one iteration, and every statement of it runs in the first iteration."""
    leaves: list[tirx.Stmt] = []
    tvm_ffi.structural_walk(loop.body, [(tirx.Break, leaves.append), (tirx.Continue, leaves.append)])
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent) > 0 and not leaves


def _always(statement: tirx.Stmt) -> Iterator[Expr]:
    """Yield the expressions that each iteration computes: not those in branches, nor in loops that may not run."""
    if isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from _always(part)
    elif isinstance(statement, tirx.For):
        if _has_turns(statement):
            yield from _always(statement.body)
    elif isinstance(statement, tirx.BufferStore):
        yield from (statement.value, *statement.indices)
    elif isinstance(statement, tirx.IfThenElse):
        yield statement.condition
    elif isinstance(statement, tirx.Bind):
        yield statement.value


def _replaced(loop: tirx.For, found: list[Expr], buffers: list[Var]) -> tirx.For:
    """Return the loop with variables for the expressions, the larger first, because they may contain smaller ones."""
    for known, buffer in sorted(zip(found, buffers, strict=True), key=lambda pair: -_size(pair[0])):

        def variable(expr: Expr, known: Expr = known, buffer: Var = buffer) -> Expr:
            return _as(expr, tirx.BufferLoad(buffer, [0])) if tvm_ffi.structural_equal(expr, known) else expr

        loop = tvm_ffi.structural_map(loop, [(Expr, variable)])
    return loop


def _size(expr: Expr) -> int:
    """Return the number of expressions in an expression, itself included."""
    parts: list[Expr] = []
    tvm_ffi.structural_walk(expr, [(Expr, parts.append)])
    return len(parts)


def _is_function(call: Call) -> bool:
    return call.op.name.rpartition(".")[2] not in CHEAP_CALLS and str(call.ty.dtype).startswith("float")


def _as(like: Expr | Var, expr: Expr) -> Expr:
    dtype = str(like.ty.dtype)
    return expr if dtype == str(expr.ty.dtype) else tirx.Cast(dtype, expr)


Bounds = tuple[int, int]
"""Least and largest value."""
_LIMIT = 1 << 31


def narrow_indices(function: tirx.PrimFunc, places: Mapping[Var, Bounds]) -> tirx.PrimFunc:
    """Return the function with indices in 32 bits. places: bounds of variables, by their buffers of one element."""
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
        """Return an expression in 32 bits and its bounds; None if these are unknown or too large."""
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
