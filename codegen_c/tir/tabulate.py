"""Replace expensive expressions of one loop counter by tables, computed bit for bit.

A nested loop computes them again for the same iterations; a table replaces each value by one load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var

from codegen_c.tir.intrinsics import RENAMED
from codegen_c.tir.loops import CountedLoop, expressions_of, operands_of

MOST_TURNS, LEAST_TURNS = 1024, 3
LEAST_INSTRUCTIONS = 5
"""Least instructions of an expression for which a table pays; a load and its conversion are two."""
LEAST_USES = 4
"""Least number of times that an entry is read in one run."""
_INTEGERS = {tirx.FloorDiv: 5, tirx.FloorMod: 5, tirx.Min: 3, tirx.Max: 3, tirx.Select: 2, Call: 2}
_FLOATS = {Call: 12, tirx.Div: 8, tirx.Cast: 2}


@dataclass(frozen=True, kw_only=True, eq=False)
class Tabulated:
    """The function with an additional parameter for each table after the others, and the tables."""

    function: tirx.PrimFunc
    tables: tuple[np.ndarray, ...]


def tabulate(function: tirx.PrimFunc, first: int) -> Tabulated:
    """Return the lowered function with tables, which are called `constant<first>` and so on; no value changes."""
    found = _Tables()
    for expr, loops in expressions_of(function.body):
        found.take(expr, loops)
    drafts = [_buffer(values, "draft") for values in found.data]
    read = _read(found.body(function.body, drafts))  # an expression inside a table needs no table of its own
    used = [index for index, draft in enumerate(drafts) if draft in read]
    if not used:
        return Tabulated(function=function, tables=())
    names = {index: f"constant{first + number}" for number, index in enumerate(used)}
    buffers = [_buffer(values, names.get(index, "unread")) for index, values in enumerate(found.data)]
    parameters = [*function.params, *(buffers[index] for index in used)]
    made = tirx.PrimFunc(parameters, found.body(function.body, buffers), function.ret_type, attrs=function.attrs)
    passes = [tirx.transform.NarrowDataType(32), tirx.transform.StmtSimplify(), tirx.transform.RemoveNoOp()]
    lowered = tvm.transform.Sequential(passes)(tvm.IRModule({"main": made}))["main"]
    return Tabulated(function=lowered, tables=tuple(found.data[index] for index in used))


@dataclass(kw_only=True)
class _Tables:
    """Candidate tables, and the table and loop that contain an expression's values, by the expression's hash."""

    data: list[np.ndarray] = field(default_factory=list[np.ndarray])
    places: dict[int, tuple[Expr, CountedLoop, int]] = field(default_factory=dict[int, tuple[Expr, CountedLoop, int]])

    def take(self, expr: Expr, loops: tuple[CountedLoop, ...]) -> None:
        """Add a table of the expression, or else of its operands."""
        if tvm_ffi.structural_hash(expr) in self.places:
            return
        loop = _only_loop(expr, loops)
        if loop is None or not self._made(expr, loop, loops):
            for operand in operands_of(expr):
                self.take(operand, loops)

    def body(self, body: tirx.Stmt, buffers: list[Var]) -> tirx.Stmt:
        """Return the statement with loads of these buffers."""

        def replaced(expr: Expr) -> Expr:
            known = self.places.get(tvm_ffi.structural_hash(expr))
            if known is None or not tvm_ffi.structural_equal(known[0], expr):
                return expr
            _, loop, index = known
            load = tirx.BufferLoad(buffers[index], [loop.counter - loop.begin])
            dtype = str(expr.ty.dtype)
            return load if dtype == "float32" else tirx.Cast(dtype, load)

        return tvm_ffi.structural_map(body, [(Expr, replaced)])

    def _made(self, expr: Expr, loop: CountedLoop, loops: tuple[CountedLoop, ...]) -> bool:
        dtype = str(expr.ty.dtype)
        if dtype not in ("int32", "int64", "float32") or sum(_costs(expr)) < LEAST_INSTRUCTIONS:
            return False
        uses = math.prod(other.turns for other in loops[: loops.index(loop)])
        if not LEAST_TURNS <= loop.turns <= MOST_TURNS or (uses < LEAST_USES and dtype != "int64"):
            return False
        try:
            values = values_of(expr, loop.counter, loop.begin + np.arange(loop.turns))
        except Unknown:
            return False
        if dtype != "float32":
            if np.abs(values).max() >= 1 << 15:
                return False
            values = values.astype(np.uint16 if values.min() >= 0 else np.int16)
        self.places[tvm_ffi.structural_hash(expr)] = expr, loop, self._index(np.ascontiguousarray(values))
        return True

    def _index(self, values: np.ndarray) -> int:
        """Return the index of a table, which is added if no equal table exists."""
        for index, known in enumerate(self.data):
            if known.dtype == values.dtype and known.tobytes() == values.tobytes():
                return index
        self.data.append(values)
        return len(self.data) - 1


def _buffer(values: np.ndarray, name: str) -> Var:
    return tirx.decl_buffer(values.shape, str(values.dtype), name)


def _read(body: tirx.Stmt) -> set[Var]:
    """Return the buffers that a statement loads from."""
    found: set[Var] = set()
    tvm_ffi.structural_walk(body, [(TensorLoad, lambda load: found.add(load.source))])
    return found


def _only_loop(expr: Expr, loops: tuple[CountedLoop, ...]) -> CountedLoop | None:
    """Return the loop whose counter is the only variable in the expression; None for other expressions."""
    read: set[Var] = set()
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, [(Var, read.add), (TensorLoad, loads.append)])
    known = [loop for loop in loops if loop.counter in read]
    return known[0] if not loads and len(read) == len(known) == 1 else None


def _costs(expr: Expr) -> Iterator[int]:
    """Yield the modelled instructions of each operation."""
    dtype = str(expr.ty.dtype)
    if dtype.startswith("float"):
        yield _FLOATS.get(type(expr), 0 if isinstance(expr, tirx.FloatImm) else 1)
    else:
        yield _INTEGERS.get(type(expr), 0) * (3 if dtype == "int64" else 1)
    for operand in operands_of(expr):
        yield from _costs(operand)


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
    """Internal: a value is not known at compile time, or not to the bit."""


def values_of(expr: Expr, counter: Var, turns: Array) -> Array:
    """Return the values of an expression if `counter` is each of `turns`, int64[n]: integers as int64, floats, bool.

    Raises Unknown for other variables and tensors, functions that are not exact, and values that C leaves undefined.
    """
    return np.broadcast_to(values_over(expr, {counter: turns}), turns.shape)


def values_over(expr: Expr, counters: Mapping[Var, Array]) -> Array:
    """Return the values for several counters, whose arrays of values broadcast with each other and to the result.

    counters: also holds the elements of tables, by their buffers.
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
    """Return the values if their type can hold them. Raises Unknown otherwise."""
    if dtype in ("float32", "float64"):
        if values.dtype != dtype or not np.isfinite(values).all():
            raise Unknown
    elif dtype not in ("int32", "int64") or (np.abs(values) >= _LIMIT).any():
        raise Unknown
    return values


def _cast(values: Array, dtype: str) -> Array:
    if dtype in ("float32", "float64"):
        return values.astype(dtype)
    if dtype not in ("int32", "int64") or not (np.abs(values) < _LIMIT).all():  # NaN does not fit either
        raise Unknown
    return np.trunc(values).astype(np.int64)
