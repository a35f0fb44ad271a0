"""Floats of 16 bits in expressions: C knows their bits alone, so they are moved, chosen and cast, nothing else."""

from __future__ import annotations

from typing import Protocol

from tvm import tirx
from tvm.ir import Call, Expr

from codegen_c.c_text.narrow_floats import NARROW_FLOATS
from codegen_c.tir import helpers
from codegen_c.tir.plain_c import CannotLowerError, Helper

Text = tuple[str, int]  # C text and how tightly its outermost operator binds
_MOVES = frozenset(("if_then_else", "likely", "reinterpret"))
_COMPUTES = (
    tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.Min, tirx.Max, tirx.FloorDiv, tirx.FloorMod,
    tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE,
)  # fmt: skip


class Printer(Protocol):
    """Prints expressions, and collects the functions that they call."""

    def helped(self, helper: Helper, *arguments: Expr) -> Text: ...
    def calls(self, helper: Helper, argument: str) -> Text: ...
    def text(self, expr: Expr, at_least: int = 0) -> str: ...


def refuse_arithmetic(expr: Expr) -> None:
    """Raises CannotLowerError for an operator on floats of 16 bits: it is computed in float32 between casts."""
    if isinstance(expr, _COMPUTES):
        dtypes = [str(side.ty.dtype) for side in (expr.a, expr.b)]
    elif isinstance(expr, Call) and expr.op.name.rpartition(".")[2] not in _MOVES:
        dtypes = [str(expr.ty.dtype)]
    else:
        return
    narrow = next((dtype for dtype in dtypes if dtype in NARROW_FLOATS), None)
    if narrow:
        raise CannotLowerError(f"arithmetic on {narrow}")


def narrow_cast(printer: Printer, expr: tirx.Cast) -> Text | None:
    """A cast from or to 16 bits, by way of float32; None for one between other types."""
    target, source = str(expr.ty.dtype), str(expr.value.ty.dtype)
    if source in NARROW_FLOATS:
        if target == "float32":
            return printer.helped(helpers.decode_helper(source), expr.value)
        wide = printer.text(tirx.Cast(target, tirx.Cast("float32", expr.value)))
        return f"({wide})", helpers.PRIMARY
    if target not in NARROW_FLOATS:
        return None
    encode = helpers.encode_helper(target)
    if source == "float32":
        return printer.helped(encode, expr.value)
    if source == "float64":
        return printer.calls(encode, printer.helped(helpers.odd_helper(), expr.value)[0])
    return printer.calls(encode, printer.text(tirx.Cast("float32", expr.value)))
