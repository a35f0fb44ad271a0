"""Functions of math.h that TIR intrinsics become."""

from __future__ import annotations

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
"""Intrinsics of a few instructions, none of them a call of a function."""
# Both round half to even: in the default rounding mode rint differs from nearbyint in a status flag only.
RENAMED = {"round": "rint", "nearbyint": "rint"}


def library_function(name: str, dtype: str) -> str:
    """`exp` of float32 -> `expf`; CannotLowerError names what is not in math.h."""
    name = RENAMED.get(name, name)
    if name not in SAME_NAME or not dtype.startswith("float"):
        raise CannotLowerError(f"a call of {name} on {dtype}, which has no counterpart in C11")
    return f"{name}f" if dtype == "float32" else name
