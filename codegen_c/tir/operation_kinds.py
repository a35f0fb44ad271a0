"""Kinds of operations that expressions are, by which `codegen_c.kernels.work` tells what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var

from codegen_c.tir.families import DIVISIONS, FREE, RELATIONS, family, function_name, is_float
from codegen_c.tir.intrinsics import RENAMED
from codegen_c.tir.ranges import place_inside

_CALLS = {
    "sigmoid": ("exp", "arithmetic", "divide"),
    "rsqrt": ("sqrt", "divide"),
    "exp10": ("pow",),
    "isnan": ("compare",),
}


def kinds_of(expr: Expr, is_variable: Callable[[Var], bool]) -> Iterator[str]:
    """Operations of an expression itself, beside those of its operands. is_variable: of a buffer, nothing is loaded."""
    if isinstance(expr, TensorLoad):
        if not is_variable(expr.source):
            yield "load"
    elif isinstance(expr, DIVISIONS):
        by_constant = isinstance(expr.b, tirx.IntImm)
        name = "fmod" if isinstance(expr, tirx.Mod) and is_float(expr) else "divide"
        yield "quotient" if by_constant else f"{family(expr)} {name}"
    elif isinstance(expr, tirx.Min | tirx.Max):
        yield f"{family(expr)} {_extreme(expr, is_variable)}"
    elif isinstance(expr, RELATIONS):
        yield f"{family(expr.a)} compare"
    elif isinstance(expr, tirx.Select):
        yield f"{family(expr)} choice"
    elif isinstance(expr, tirx.Cast):
        yield from _of_cast(expr)
    elif isinstance(expr, tirx.LShift | tirx.RShift):
        yield f"{family(expr)} shift"
    elif isinstance(expr, Call):
        yield from _of_call(expr)
    elif not isinstance(expr, (tirx.IntImm, tirx.FloatImm, Var)) and (
        is_float(expr) or _reads_memory(expr, is_variable)
    ):
        # Sums and products of counters, and of what does not change, are carried from turn to turn.
        is_product = isinstance(expr, tirx.Mul) and is_float(expr)
        yield f"{family(expr)} {'product' if is_product else 'arithmetic'}"


def _reads_memory(expr: Expr, is_variable: Callable[[Var], bool]) -> bool:
    """True where an element is read that is no variable."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, [(TensorLoad, found.append)])
    return not all(is_variable(load.source) for load in found)


def _extreme(expr: tirx.Min | tirx.Max, is_variable: Callable[[Var], bool]) -> str:
    """`place` inside of a buffer, `limit` of a float or of what one so far is, or `extreme` of two."""
    if place_inside(expr) is not None:
        return "place"
    so_far = isinstance(expr.a, TensorLoad) and is_variable(expr.a.source)
    return "limit" if is_float(expr) and (so_far or isinstance(expr.b, tirx.FloatImm)) else "extreme"


def _of_cast(cast: tirx.Cast) -> Iterator[str]:
    to, of = family(cast), family(cast.value)
    if to == of:
        return
    if "double" in (to, of):
        yield "double cast"
    elif "float" in (to, of):
        yield "float cast" if to == "float" else "float truncate"


def _of_call(call: Call) -> Iterator[str]:
    name = function_name(call)
    if name in FREE:
        return
    if name == "if_then_else":
        yield "branch"
    elif not is_float(call) and name != "isnan":
        yield f"{family(call)} {'shift' if name.startswith('shift') else 'arithmetic'}"
    else:
        of = family(call.args[0] if name == "isnan" else call)
        yield from (f"{of} {part}" for part in _CALLS.get(name, (RENAMED.get(name, name),)))
