"""Turns of short innermost loops, four side by side: compilers then count once for four, and step pointers once.

    for i in 0..30: y[i] = f(x[i])
      ->  for i in 0..7: for j in 0..4: y[i * 4 + j] = f(x[i * 4 + j]);  for i in 0..2: y[i + 28] = f(x[i + 28])
No element is computed otherwise, or in another order.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Constant, Expr, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.tir.intrinsics import CHEAP_CALLS
from codegen_c.tir.storage import place_buffers
from codegen_c.tir.vectors import is_vector

_PLAIN = (tirx.BufferStore, tirx.IfThenElse, tirx.SeqStmt)
BLOCK = 4
"""Turns side by side."""
LEAST_TURNS = 16
"""Turns of a loop from which on compilers do not write them side by side by themselves."""
MOST_OPERATIONS = 20
"""Operations of a turn that are little beside counting it: those of indices among them, what does not change is not."""


def block_loops(function: tirx.PrimFunc, *, keep_vectors: bool = False) -> tirx.PrimFunc:
    """The function with such loops blocked, or with those that compilers make no vectors of."""
    owners, analyzer = place_buffers(function.body).aliases, Analyzer()

    def block(loop: tirx.For) -> tirx.Stmt:
        is_kept = keep_vectors and is_vector(loop, LEAST_TURNS, owners, analyzer)
        return loop if is_kept or not _is_short(loop) else _blocked(loop)

    blocked = function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, block)]))
    return tirx.transform.StmtSimplify()(tvm.IRModule({"main": blocked}))["main"]


def _blocked(loop: tirx.For) -> tirx.Stmt:
    turns, counter = int(loop.extent), loop.loop_var
    whole, rest = turns // BLOCK * BLOCK, turns % BLOCK
    outer, inner = Var(counter.name, counter.ty), Var(counter.name, counter.ty)
    each = _turns(loop, inner, BLOCK, lambda place: outer * BLOCK + place)
    if _reads_places(loop.body):
        each = tirx.SeqStmt([_at(loop, outer * BLOCK + place) for place in range(BLOCK)])
    blocks = tirx.For(outer, _like(counter, 0), _like(counter, whole // BLOCK), loop.kind, each)
    if not rest:
        return blocks
    return tirx.SeqStmt([blocks, _turns(loop, Var(counter.name, counter.ty), rest, lambda place: place + whole)])


def _turns(loop: tirx.For, counter: Var, turns: int, place_of: Callable[[Var], Expr]) -> tirx.For:
    return tirx.For(counter, _like(counter, 0), _like(counter, turns), loop.kind, _at(loop, place_of(counter)))


def _at(loop: tirx.For, place: Expr) -> tirx.Stmt:
    """A turn of the loop."""
    return tvm_ffi.structural_map(loop.body, [(Var, lambda var: place if var.same_as(loop.loop_var) else var)])


def _reads_places(body: tirx.Stmt) -> bool:
    """True where it reads at places that tensors hold: of several statements compilers keep the row that they share."""
    indices: list[Expr] = []
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(body, [(TensorLoad, lambda load: indices.extend(load.indices))])
    for index in indices:
        tvm_ffi.structural_walk(index, [(TensorLoad, loads.append)])
    return any(int(load.source.ty.shape[0]) > 1 for load in loads)  # one element is a variable


def is_block(loop: tirx.For) -> bool:
    """True for a loop of as few turns as stand side by side."""
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == BLOCK


def _is_short(loop: tirx.For) -> bool:
    known = isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)
    if not known or int(loop.min) or loop.step is not None or int(loop.extent) < LEAST_TURNS:
        return False
    others: list[tirx.Stmt] = []
    tvm_ffi.structural_walk(
        loop.body, [(tirx.Stmt, lambda part: others.append(part) if not isinstance(part, _PLAIN) else None)]
    )
    return not others and _does_little(loop.body, loop.loop_var)


def _does_little(body: tirx.Stmt, counter: Var) -> bool:
    """True for few different operations that change from turn to turn, none of them a call of a function."""
    operations: set[int] = set()
    calls: list[Call] = []

    def visit(expr: Expr) -> None:
        if isinstance(expr, Call) and expr.op.name.rpartition(".")[2] not in CHEAP_CALLS:
            calls.append(expr)
        if not isinstance(expr, Var | Constant) and _reads(expr, counter):
            operations.add(tvm_ffi.structural_hash(expr))

    tvm_ffi.structural_walk(body, [(Expr, visit)])
    return not calls and len(operations) <= MOST_OPERATIONS


def _reads(expr: Expr, counter: Var) -> bool:
    found: list[Var] = []
    tvm_ffi.structural_walk(expr, [(Var, lambda var: found.append(var) if var.same_as(counter) else None)])
    return bool(found)


def _like(counter: Var, number: int) -> tirx.IntImm:
    return tirx.IntImm(str(counter.ty.dtype), number)
