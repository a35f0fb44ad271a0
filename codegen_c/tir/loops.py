"""Walks over lowered statements: operands of expressions, and expressions with their enclosing loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Call, Expr, StringImm, TensorLoad, Var


@dataclass(frozen=True, kw_only=True)
class CountedLoop:
    """A loop with a constant begin, a constant number of iterations, and a step of one."""

    counter: Var
    begin: int
    turns: int


def expressions_of(
    statement: tirx.Stmt, loops: tuple[CountedLoop, ...] = ()
) -> Iterator[tuple[Expr, tuple[CountedLoop, ...]]]:
    """Yield the outermost expressions of a statement, each with its enclosing counted loops, the outermost first."""
    if isinstance(statement, tirx.SeqStmt):
        for part in statement.seq:
            yield from expressions_of(part, loops)
    elif isinstance(statement, tirx.For):
        known = isinstance(statement.min, tirx.IntImm) and isinstance(statement.extent, tirx.IntImm)
        if known and statement.step is None:
            one = CountedLoop(counter=statement.loop_var, begin=int(statement.min), turns=int(statement.extent))
            yield from expressions_of(statement.body, (*loops, one))
    elif isinstance(statement, tirx.IfThenElse):
        yield statement.condition, loops
        for side in (statement.then_case, statement.else_case):
            if side is not None:
                yield from expressions_of(side, loops)
    elif isinstance(statement, tirx.AttrStmt):
        yield from expressions_of(statement.body, loops)
    elif isinstance(statement, tirx.BufferStore):
        yield from ((expr, loops) for expr in (statement.value, *statement.indices))
    elif isinstance(statement, tirx.Bind):
        yield statement.value, loops


def operands(expr: Expr) -> tuple[Sequence[Expr], Sequence[Expr]]:
    """Return the operands that are always computed, and the branches of a choice, only one of which is computed."""
    if isinstance(expr, TensorLoad):
        return list(expr.indices), ()
    if isinstance(expr, tirx.Select):
        return (expr.condition,), (expr.true_value, expr.false_value)
    if isinstance(expr, Call):
        given = [part for part in expr.args if isinstance(part, Expr) and not isinstance(part, StringImm)]
        return (given[:1], given[1:]) if expr.op.name.endswith(".if_then_else") else (given, ())
    fields = ("a", "b", "value", "body")
    return [operand for field in fields if isinstance(operand := getattr(expr, field, None), Expr)], ()


def operands_of(expr: Expr) -> list[Expr]:
    """Return all operands, branches included."""
    always, either = operands(expr)
    return [*always, *either]
