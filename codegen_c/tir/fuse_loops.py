"""Nested loops that walk memory without a gap, as one loop.

    for i in 0..24: for j in 0..30: y[i * 30 + j] = f(x[i * 30 + j])
      ->  for i in 0..720: y[i] = f(x[i])
No element is computed otherwise, or in another order.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, Range, TensorLoad, Var
from tvm.sym import Analyzer


def fuse_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with such loops fused, from the innermost ones on."""
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, _fused)]))


def _fused(outer: tirx.For) -> tirx.For:
    inner = outer.body
    if not (isinstance(inner, tirx.For) and all(map(_is_plain, (outer, inner)))):
        return outer
    rows, columns = int(outer.extent), int(inner.extent)
    counter = Var(inner.loop_var.name, inner.loop_var.ty)
    if str(outer.loop_var.ty.dtype) != str(counter.ty.dtype):
        return outer
    parts = {outer.loop_var: tirx.FloorDiv(counter, _like(counter, columns)),
             inner.loop_var: tirx.FloorMod(counter, _like(counter, columns))}  # fmt: skip
    fusing = _Fusing(counter=counter, turns=rows * columns, parts=parts)
    body = fusing.body(inner.body)
    if body is None:
        return outer
    return tirx.For(counter, _like(counter, 0), _like(counter, rows * columns), outer.kind, body)


def _is_plain(loop: tirx.For) -> bool:
    """True for a loop from zero to a constant, one by one."""
    known = isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)
    return known and int(loop.min) == 0 and loop.step is None and loop.kind == tirx.ForKind.SERIAL


class _Fusing:
    """parts: the counters of two loops by that of one."""

    def __init__(self, *, counter: Var, turns: int, parts: dict[Var, Expr]) -> None:
        self._counter, self._parts = counter, parts
        self._analyzer = Analyzer()
        self._analyzer.bind(counter, Range(_like(counter, 0), _like(counter, turns)))
        self._fails = False

    def body(self, body: tirx.Stmt) -> tirx.Stmt | None:
        """The statement in one loop; None where an index, or something else, needs both counters."""
        loads: list[TensorLoad] = []

        def load(node: TensorLoad) -> Expr:
            loads.append(node)
            return tirx.BufferLoad(node.source, self._indices(node.indices))

        def store(node: tirx.BufferStore) -> tirx.Stmt:
            return tirx.BufferStore(node.buffer, node.value, self._indices(node.indices))

        changed = tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store)])
        left: list[Var] = []
        tvm_ffi.structural_walk(changed, [(Var, lambda var: left.append(var) if var in self._parts else None)])
        return None if left or self._fails or not loads else changed

    def _indices(self, indices: list[Expr]) -> list[Expr]:
        return [self._index(index) for index in indices]

    def _index(self, index: Expr) -> Expr:
        read: list[Var] = []
        tvm_ffi.structural_walk(index, [(Var, lambda var: read.append(var) if var in self._parts else None)])
        if not read:
            return index
        whole = tvm_ffi.structural_map(index, [(Var, lambda var: self._parts.get(var, var))])
        simple = self._analyzer.simplify(whole)
        divisions: list[Expr] = []
        tvm_ffi.structural_walk(simple, [(tirx.FloorDiv, divisions.append), (tirx.FloorMod, divisions.append)])
        self._fails |= bool(divisions)
        return simple


def _like(counter: Var, number: int) -> tirx.IntImm:
    return tirx.IntImm(str(counter.ty.dtype), number)
