"""Kinds of expressions: what they compute with, and which function a call names."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Call, Expr

DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
RELATIONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
FREE = ("likely", "reinterpret", "assume", "undef")
"""Calls that no instruction is made of."""


def dtype_of(expr: Expr) -> str:
    return str(expr.ty.dtype)


def family(expr: Expr) -> str:
    """`float`, `double`, `integer`, or `long` for one of 64 bits."""
    other = "float" if is_float(expr) else "integer"
    return {"float64": "double", "int64": "long", "uint64": "long"}.get(dtype_of(expr), other)


def is_float(expr: Expr) -> bool:
    return "float" in dtype_of(expr)


def function_name(call: Call) -> str:
    """Name of an intrinsic, or of a function of math.h as for doubles."""
    name = call.op.name.rpartition(".")[2]
    if name in ("call_pure_extern", "call_extern"):
        return str(call.args[0].value).removesuffix("f")
    return name
