"""Exact C literals of every element type; float32 is spelled in `codegen_c.c_text.text`."""

from __future__ import annotations

import math

from codegen_c.c_text.narrow_floats import NARROW_FLOATS, bits_of
from codegen_c.c_text.text import float_literal


def number(value: float, dtype: str) -> str:
    """A constant of exactly this value: `0.1f`, `INFINITY`, `-3`, `7u`, `INT64_C(5)`, `INT32_MIN`."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "float32":
        return float_literal(value)
    if dtype == "float64":
        return _double(float(value))
    if dtype in NARROW_FLOATS:
        return str(bits_of(value, dtype))
    return _integer(int(value), dtype)


def _double(value: float) -> str:
    if not math.isfinite(value):
        return f"(double){float_literal(value)}"
    text = repr(value)
    text = text if any(mark in text for mark in ".e") else f"{text}.0"
    return f"({text})" if text.startswith("-") else text


def _integer(value: int, dtype: str) -> str:
    bits = int(dtype.lstrip("uint"))
    if dtype.startswith("uint"):
        return f"UINT64_C({value})" if bits == 64 else f"{value}u" if bits == 32 else str(value)
    if bits >= 32 and value == -(2 ** (bits - 1)):
        return f"INT{bits}_MIN"  # C has no literal for it: the minus sign is an operator
    text = f"INT64_C({value})" if bits == 64 else str(value)
    return f"({text})" if value < 0 and bits < 64 else text
