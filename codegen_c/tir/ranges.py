"""Facts about TIR expressions that decide if C's own operators are defined for them."""

from __future__ import annotations

import math

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad
from tvm.sym import Analyzer

from codegen_c.tir.edges import bits_of


def may_overflow(expr: Expr, analyzer: Analyzer) -> bool:
    """Return True if a sum, difference or product of int32 or int64 may overflow, by the bounds of its operands.

    Loop counters have bounds and elements of tensors have none; the bounds of int64 end at int64's limits.
    """
    dtype = str(expr.ty.dtype)
    if dtype not in ("int32", "int64"):
        return False
    bound = analyzer.const_int_bound(expr)
    limit = 2 ** (bits_of(dtype) - 1) - 1
    return not (-limit <= bound.min_value and bound.max_value < limit)


def divides_by_edge(divisor: Expr, analyzer: Analyzer) -> bool:
    """Return True if a divisor may be 0 or -1."""
    bound = analyzer.const_int_bound(divisor)
    return bound.min_value <= 0 <= bound.max_value or bound.min_value <= -1 <= bound.max_value


def shifts_too_far(count: Expr, dtype: str, analyzer: Analyzer) -> bool:
    """Return True if a shift's count may be negative, or at least the width."""
    bound = analyzer.const_int_bound(count)
    return bound.min_value < 0 or bound.max_value >= bits_of(dtype)


def reads_elements(expr: Expr) -> bool:
    """Return True if an expression depends on elements of tensors, not on loop counters alone."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, [(TensorLoad, found.append)])
    return bool(found)


def clamped(expr: tirx.Cast) -> tuple[Expr, float, float] | None:
    """Return the value and the limits of a float that is clipped to numbers of its integer type; None otherwise."""
    outer = expr.value
    if not isinstance(outer, tirx.Max | tirx.Min) or not isinstance(outer.a, tirx.Max | tirx.Min):
        return None
    inner = outer.a
    if isinstance(inner, type(outer)) or not all(isinstance(side.b, tirx.FloatImm) for side in (inner, outer)):
        return None
    low, high = sorted((float(inner.b.value), float(outer.b.value)))
    bits, is_signed = bits_of(str(expr.ty.dtype)), str(expr.ty.dtype).startswith("int")
    least, largest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    holds = math.isfinite(low) and math.isfinite(high) and least <= low and high <= largest
    return (inner.a, low, high) if holds else None


def place_inside(expr: Expr) -> tuple[Expr, Expr] | None:
    """Return the value and the last index of an integer that is clamped to 0 ...

    last (legalizations.py); None otherwise.
    """
    inner = expr.a if isinstance(expr, tirx.Max) else None
    if not isinstance(inner, tirx.Min) or str(expr.ty.dtype) not in ("int32", "int64"):
        return None
    is_inside = isinstance(inner.b, tirx.IntImm) and int(inner.b) >= 0 and isinstance(expr.b, tirx.IntImm)
    return (inner.a, inner.b) if is_inside and int(expr.b) == 0 else None
