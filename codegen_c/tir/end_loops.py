"""Loops that data end: an iteration runs only while a condition in memory holds.

    for t in 100: { if (going) { ...; going = a < b; } }
      ->  for t in 100: { if (!going) { break; } ...; going = a < b; }

Nothing but the skipped statements changes the condition, so once it is false, no later iteration does anything. TVM's
own backends have no `break`, so the first form is the one that all passes see, and only the printed C ends the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var


def end_loops(body: tirx.Stmt) -> tirx.Stmt:
    """Return the statement with `break` in the loops that data end."""
    return tvm_ffi.structural_map(body, [(tirx.For, _with_break)])


def shortest(body: tirx.Stmt) -> tirx.Stmt:
    """Return the statement with the fewest iterations of each loop that data end: one if it surely begins, or none."""
    return _shortest(body, set())


def has_open_loops(body: tirx.Stmt) -> bool:
    """Return True if data end a loop of the statement."""
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(body, [(tirx.For, loops.append)])
    return any(_condition(loop) is not None for loop in loops)


def _with_break(loop: tirx.For) -> tirx.For:
    if _condition(loop) is None:
        return loop
    leave = tirx.IfThenElse(tirx.Not(loop.body.condition), tirx.Break(), None)
    inside = tirx.SeqStmt([leave, loop.body.then_case])
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, inside, loop.thread_binding, loop.annotations)


def _condition(loop: tirx.For) -> Var | None:
    """Return the variable that ends a loop; None for a loop that runs all iterations."""
    inside = loop.body
    if not isinstance(inside, tirx.IfThenElse) or inside.else_case is not None:
        return None
    condition = inside.condition
    if not isinstance(condition, TensorLoad) or not all(isinstance(index, tirx.IntImm) for index in condition.indices):
        return None
    stored: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(inside.then_case, [(tirx.BufferStore, stored.append)])
    return condition.source if any(store.buffer.same_as(condition.source) for store in stored) else None


def _shortest(statement: tirx.Stmt, true: set[Var]) -> tirx.Stmt:
    """true: variables that are known to be true ahead of the statement; updated to those after it."""
    if isinstance(statement, tirx.SeqStmt):
        return _sequence([_shortest(part, true) for part in statement.seq])
    if isinstance(statement, tirx.BufferStore):
        true.discard(statement.buffer)
        if isinstance(statement.value, tirx.IntImm) and int(statement.value) == 1:
            true.add(statement.buffer)
        return statement
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, _shortest(statement.body, true))
    if not isinstance(statement, tirx.For):
        return statement
    condition = _condition(statement)
    turns = statement.extent if condition is None else tirx.const(int(condition in true), statement.extent.ty.dtype)
    inside = _shortest(statement.body if condition is None else statement.body.then_case, set())
    true.clear()
    return tirx.For(statement.loop_var, statement.min, turns, statement.kind, inside)


def _sequence(parts: Sequence[tirx.Stmt]) -> tirx.Stmt:
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(list(parts))
