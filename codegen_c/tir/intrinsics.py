"""Functions of math.h that TIR intrinsics become, and the kinds of expressions that call them."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Call, Expr

from codegen_c.tir.plain_c import CannotLowerError

SAME_NAME = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "ceil",
        "copysign",
        "cos",
        "cosh",
        "erf",
        "exp",
        "exp2",
        "fabs",
        "floor",
        "fma",
        "fmod",
        "hypot",
        "ldexp",
        "log",
        "log10",
        "log1p",
        "log2",
        "nextafter",
        "pow",
        "rint",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
    ]
)
CHEAP_CALLS = frozenset(
    [
        "if_then_else",
        "likely",
        "fabs",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "bitwise_not",
        "shift_left",
        "shift_right",
        "reinterpret",
        "isnan",
        "isinf",
        "isfinite",
    ]
)
"""Intrinsics of a few instructions, none of which calls a function."""
# Both round half to even: in the default rounding mode rint differs from nearbyint in a status flag only.
RENAMED = {"round": "rint", "nearbyint": "rint"}


def library_function(name: str, dtype: str) -> str:
    """Return the name of the C function: `exp` of float32 -> `expf`. Raises CannotLowerError if math.h lacks it."""
    name = RENAMED.get(name, name)
    if name not in SAME_NAME or not dtype.startswith("float"):
        raise CannotLowerError(f"a call of {name} on {dtype}, which has no counterpart in C11")
    return f"{name}f" if dtype == "float32" else name


DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
RELATIONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
FREE = ("likely", "reinterpret", "assume", "undef")
"""Calls that emit no code."""


def dtype_of(expr: Expr) -> str:
    return str(expr.ty.dtype)


def family(expr: Expr) -> str:
    """Return the kind of an expression's type: `float`, `double`, `integer`, or `long` for 64-bit integers."""
    other = "float" if is_float(expr) else "integer"
    return {"float64": "double", "int64": "long", "uint64": "long"}.get(dtype_of(expr), other)


def is_float(expr: Expr) -> bool:
    return "float" in dtype_of(expr)


def function_name(call: Call) -> str:
    """Return the name of an intrinsic, or of a function of math.h without the suffix of float32."""
    name = call.op.name.rpartition(".")[2]
    if name in ("call_pure_extern", "call_extern"):
        return str(call.args[0].value).removesuffix("f")
    return name
