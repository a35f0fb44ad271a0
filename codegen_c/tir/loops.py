"""Walks over lowered statements: operands of expressions, and expressions with the loops that are around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Call, Expr, StringImm, TensorLoad, Var


@dataclass(frozen=True, kw_only=True)
class CountedLoop:
    """A loop from a constant on, of a constant number of turns, each one more."""

    counter: Var
    begin: int
    turns: int


def expressions_of(
    statement: tirx.Stmt, loops: tuple[CountedLoop, ...] = ()
) -> Iterator[tuple[Expr, tuple[CountedLoop, ...]]]:
    """Outermost expressions of a statement, each with the loops around it, outermost first; of other loops none."""
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
    """Operands that are always computed, and the sides of a choice: what one computes, the other one does not have."""
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
    """All of them."""
    always, either = operands(expr)
    return [*always, *either]
