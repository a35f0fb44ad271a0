"""Innermost loops with a choice that no turn changes, as a loop for each side of it.

    for j in 0..30: y[i * 30 + j] = (1 <= i) ? x[i * 30 + j - 30] : 0
      ->  if (1 <= i) { for j in 0..30: y[..] = x[..]; } else { for j in 0..30: y[..] = 0; }
No element is computed otherwise, or in another order.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, Var

from codegen_c.tir.ranges import reads_elements


def unswitch_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with such loops in branches."""
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, _unswitched)]))


def _unswitched(loop: tirx.For) -> tirx.Stmt:
    store = loop.body
    chosen = _choice(store.value) if isinstance(store, tirx.BufferStore) else None
    if chosen is None or reads_elements(chosen[0]) or _reads(chosen[0], loop.loop_var):
        return loop
    condition, *sides = chosen
    return tirx.IfThenElse(condition, *(_with_value(loop, side) for side in sides))


def _choice(expr: Expr) -> tuple[Expr, Expr, Expr] | None:
    """Condition and both sides of a value that is a choice."""
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    if isinstance(expr, Call) and expr.op.name.endswith(".if_then_else"):
        condition, inside, outside = expr.args
        return condition, inside, outside
    return None


def _with_value(loop: tirx.For, value: Expr) -> tirx.Stmt:
    """The loop with another value stored, its counter its own."""
    counter = Var(loop.loop_var.name, loop.loop_var.ty)
    body = tirx.BufferStore(loop.body.buffer, value, loop.body.indices)
    body = tvm_ffi.structural_map(body, [(Var, lambda var: counter if var.same_as(loop.loop_var) else var)])
    return _unswitched(tirx.For(counter, loop.min, loop.extent, loop.kind, body, step=loop.step))


def _reads(expr: Expr, counter: Var) -> bool:
    found: list[Var] = []
    tvm_ffi.structural_walk(expr, [(Var, lambda var: found.append(var) if var.same_as(counter) else None)])
    return bool(found)
