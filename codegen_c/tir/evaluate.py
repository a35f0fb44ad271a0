"""Values of an expression of loop counters for all their turns, bit for bit as the C that is printed computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var

from codegen_c.tir.intrinsics import RENAMED

Array = np.ndarray
_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
}  # fmt: skip
_SUMS: dict[type, Callable[[Array, Array], Array]] = {tirx.Add: np.add, tirx.Sub: np.subtract, tirx.Mul: np.multiply}
_EXTREMES: dict[type, Callable[[Array, Array], Array]] = {tirx.Min: np.minimum, tirx.Max: np.maximum}
_QUOTIENTS: dict[type, Callable[[Array, Array], Array]] = {
    tirx.FloorDiv: np.floor_divide, tirx.FloorMod: np.remainder,
}  # fmt: skip
_RELATIONS: dict[type, Callable[[Array, Array], Array]] = {
    tirx.LT: np.less, tirx.LE: np.less_equal, tirx.GT: np.greater, tirx.GE: np.greater_equal, tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
}  # fmt: skip
_LOGIC: dict[type, Callable[[Array, Array], Array]] = {tirx.And: np.logical_and, tirx.Or: np.logical_or}
_LIMIT = 2.0**31


class Unknown(Exception):
    """Internal: a value that is not known here, or not to the bit."""


def values_of(expr: Expr, counter: Var, turns: Array) -> Array:
    """Values where `counter` is each of `turns`, int64[n]: integers as int64, floats as they are, bool.

    Raises Unknown for other variables and tensors, functions that are not exact, and values that C leaves undefined.
    """
    return np.broadcast_to(values_over(expr, {counter: turns}), turns.shape)


def values_over(expr: Expr, counters: Mapping[Var, Array]) -> Array:
    """The same for several counters, whose values are arrays that broadcast, and so is the result.

    counters: holds the elements of tables, too, by their buffers.
    """
    with np.errstate(all="ignore"):
        return _value(expr, counters)


def _value(expr: Expr, counters: Mapping[Var, Array]) -> Array:
    def of(part: Expr) -> Array:
        return _value(part, counters)

    dtype, kind = str(expr.ty.dtype), type(expr)
    is_float = dtype in ("float32", "float64")
    if isinstance(expr, Var) and expr in counters:
        return counters[expr]
    if isinstance(expr, TensorLoad) and expr.source in counters and dtype in ("int16", "uint16", "int32"):
        return counters[expr.source].astype(np.int64)[of(expr.indices[0])]
    if isinstance(expr, tirx.IntImm | tirx.FloatImm):
        return np.array(expr.value, dtype if is_float else np.int64)
    if kind in _SUMS:
        return _kept(_SUMS[kind](of(expr.a), of(expr.b)), dtype)
    if kind in _EXTREMES and not is_float:
        return _EXTREMES[kind](of(expr.a), of(expr.b))
    if kind in _QUOTIENTS and not is_float:
        divisor = of(expr.b)
        if (divisor <= 0).any():
            raise Unknown
        return _QUOTIENTS[kind](of(expr.a), divisor)
    if isinstance(expr, tirx.Div) and is_float:
        return _kept(of(expr.a) / of(expr.b), dtype)
    if kind in _RELATIONS:
        return _RELATIONS[kind](of(expr.a), of(expr.b))
    if kind in _LOGIC:
        return _LOGIC[kind](of(expr.a), of(expr.b))
    if isinstance(expr, tirx.Select):
        return np.where(of(expr.condition), of(expr.true_value), of(expr.false_value))
    if isinstance(expr, tirx.Cast):
        return _cast(of(expr.value), dtype)
    if isinstance(expr, Call):
        name = expr.op.name.rpartition(".")[2]
        if name == "if_then_else":
            return np.where(*(of(part) for part in expr.args))
        if is_float and (rounding := _ROUNDINGS.get(RENAMED.get(name, name))):
            return rounding(of(expr.args[0]))
    raise Unknown


def _kept(values: Array, dtype: str) -> Array:
    """The values, where their type holds them."""
    if dtype in ("float32", "float64"):
        if values.dtype != dtype or not np.isfinite(values).all():
            raise Unknown
    elif dtype not in ("int32", "int64") or (np.abs(values) >= _LIMIT).any():
        raise Unknown
    return values


def _cast(values: Array, dtype: str) -> Array:
    if dtype in ("float32", "float64"):
        return values.astype(dtype)
    if dtype not in ("int32", "int64") or not (np.abs(values) < _LIMIT).all():  # nor is what is no number
        raise Unknown
    return np.trunc(values).astype(np.int64)
