"""Rewrite loop nests: fuse, cut, straighten and block loops, and convert blocks of four floats to small integers.

    for i in 0..24: for j in 0..30: y[i * 30 + j] = f(x[i * 30 + j])
      ->  for i in 0..720: y[i] = f(x[i])
Each element is computed by the same operations, and in the same order, as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Constant, Expr, Range, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.tir.intrinsics import CHEAP_CALLS
from codegen_c.tir.loops import operands_of
from codegen_c.tir.ranges import clamped, reads_elements
from codegen_c.tir.storage import place_buffers
from codegen_c.tir.tabulate import Unknown, values_of
from codegen_c.tir.vectors import is_vector


def fuse_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with nested loops fused, from the innermost outwards, if their indices allow it."""
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, _fused)]))


def _fused(outer: tirx.For) -> tirx.For:
    inner = outer.body
    if not (isinstance(inner, tirx.For) and all(map(_is_plain, (outer, inner)))):
        return outer
    rows, columns = int(outer.extent), int(inner.extent)
    counter = Var(inner.loop_var.name, inner.loop_var.ty)
    if str(outer.loop_var.ty.dtype) != str(counter.ty.dtype):
        return outer
    parts = {outer.loop_var: tirx.FloorDiv(counter, _like(counter, columns)),
             inner.loop_var: tirx.FloorMod(counter, _like(counter, columns))}  # fmt: skip
    fusing = _Fusing(counter=counter, turns=rows * columns, parts=parts)
    body = fusing.body(inner.body)
    if body is None:
        return outer
    return tirx.For(counter, _like(counter, 0), _like(counter, rows * columns), outer.kind, body)


def _is_plain(loop: tirx.For) -> bool:
    """Return True for a serial loop from zero to a constant with a step of one."""
    known = isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)
    return known and int(loop.min) == 0 and loop.step is None and loop.kind == tirx.ForKind.SERIAL


class _Fusing:
    """Rewriter that fuses two loops. parts: the counters of the two loops as expressions of the fused one."""

    def __init__(self, *, counter: Var, turns: int, parts: dict[Var, Expr]) -> None:
        self._counter, self._parts = counter, parts
        self._analyzer = Analyzer()
        self._analyzer.bind(counter, Range(_like(counter, 0), _like(counter, turns)))
        self._fails = False

    def body(self, body: tirx.Stmt) -> tirx.Stmt | None:
        """Return the statement in one loop; None if an index or another expression needs both counters."""
        loads: list[TensorLoad] = []

        def load(node: TensorLoad) -> Expr:
            loads.append(node)
            return tirx.BufferLoad(node.source, self._indices(node.indices))

        def store(node: tirx.BufferStore) -> tirx.Stmt:
            return tirx.BufferStore(node.buffer, node.value, self._indices(node.indices))

        changed = tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store)])
        left: list[Var] = []
        tvm_ffi.structural_walk(changed, [(Var, lambda var: left.append(var) if var in self._parts else None)])
        return None if left or self._fails or not loads else changed

    def _indices(self, indices: list[Expr]) -> list[Expr]:
        return [self._index(index) for index in indices]

    def _index(self, index: Expr) -> Expr:
        read: list[Var] = []
        tvm_ffi.structural_walk(index, [(Var, lambda var: read.append(var) if var in self._parts else None)])
        if not read:
            return index
        whole = tvm_ffi.structural_map(index, [(Var, lambda var: self._parts.get(var, var))])
        simple = self._analyzer.simplify(whole)
        divisions: list[Expr] = []
        tvm_ffi.structural_walk(simple, [(tirx.FloorDiv, divisions.append), (tirx.FloorMod, divisions.append)])
        self._fails |= bool(divisions)
        return simple


def _like(counter: Var, number: int) -> tirx.IntImm:
    return tirx.IntImm(str(counter.ty.dtype), number)


MOST_PARTS = 3
"""Limit of the loops that one loop may become: a result between two edges takes three."""
MOST_INSIDE = 5
"""Limit of the loops inside a loop that is cut if code may grow: a padded row has three, which are written three
times."""


def cut_loops(function: tirx.PrimFunc, *, most_inside: int = 0) -> tirx.PrimFunc:
    """Return the function with loops cut where a comparison changes; the comparisons then simplify to constants.

    most_inside: limit of the loops inside a loop that is cut.
    """
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, lambda loop: _cut(loop, most_inside))]))


def _cut(loop: tirx.For, most_inside: int) -> tirx.Stmt:
    begin, extent = loop.min, loop.extent
    if not (isinstance(begin, tirx.IntImm) and isinstance(extent, tirx.IntImm)) or loop.step is not None:
        return loop
    if loop.kind != tirx.ForKind.SERIAL or _num_inside(loop) > most_inside:
        return loop
    first, end = int(begin), int(begin) + int(extent)
    parts = {place for place in _turns(loop) if first < place < end}
    if not 0 < len(parts) < MOST_PARTS:
        return loop
    return tirx.SeqStmt([_part(loop, low, high) for low, high in pairwise(sorted({first, end, *parts}))])


def _num_inside(loop: tirx.For) -> int:
    inner: list[tirx.For] = []
    tvm_ffi.structural_walk(loop.body, [(tirx.For, inner.append)])
    return len(inner)


def _turns(loop: tirx.For) -> set[int]:
    """Values of the loop variable at which a comparison changes."""
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(loop.body, [(tirx.BufferStore, stores.append)])
    found: set[int] = set()
    for node in (node for store in stores for node in _comparisons(store.value)):
        for counter, bound, is_left in ((node.a, node.b, True), (node.b, node.a, False)):
            if isinstance(counter, Var) and counter.same_as(loop.loop_var) and isinstance(bound, tirx.IntImm):
                # The comparisons i < n and n <= i change at n; i <= n and n < i change at n + 1.
                found.add(int(bound) + (isinstance(node, tirx.LT) != is_left))
    return found


def _comparisons(expr: Expr) -> Iterator[tirx.LT | tirx.LE]:
    """Yield the comparisons that choose a result; comparisons in indices become tables instead (tabulate.py)."""
    if isinstance(expr, tirx.LT | tirx.LE):
        yield expr
    elif not isinstance(expr, TensorLoad):
        for operand in operands_of(expr):
            yield from _comparisons(operand)


def _part(loop: tirx.For, low: int, high: int) -> tirx.For:
    """Return a loop over iterations [low, high) of a loop, counted from zero."""
    counter, dtype = Var(loop.loop_var.name, loop.loop_var.ty), str(loop.loop_var.ty.dtype)
    place = counter + tirx.IntImm(dtype, low) if low else counter
    body = tvm_ffi.structural_map(loop.body, [(Var, lambda var: place if var.same_as(loop.loop_var) else var)])
    return tirx.For(counter, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, high - low), loop.kind, body)


"""Limit of the consecutive loops that one loop may become: a reflected row takes three."""
MOST_TURNS = 1 << 14
"""Limit of the iterations of a loop whose indices are evaluated."""
_EVEN = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Cast, tirx.IntImm, Var)


def straighten_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with its unevenly stepping loops nested, or cut where the step changes."""
    return function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, _straightened)]))


def _straightened(loop: tirx.For) -> tirx.Stmt:
    known = isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)
    known = known and int(loop.extent) <= MOST_TURNS
    if not known or int(loop.min) or loop.step is not None or loop.kind != tirx.ForKind.SERIAL or _inner(loop):
        return loop
    bent = _bent(loop)
    if not bent:
        return loop
    turns = int(loop.extent)
    for columns in (number for number in range(turns // 2, 1, -1) if turns % number == 0):
        if all(_is_even(values.reshape(-1, columns)) for _, values in bent):
            return _nested(loop, bent, columns)
    ends = sorted({0, turns, *(place for _, values in bent for place in _bends(values))})
    if len(ends) > MOST_PARTS + 1:
        return loop
    return tirx.SeqStmt([_straight_part(loop, bent, low, high) for low, high in pairwise(ends)])


def _inner(loop: tirx.For) -> list[tirx.For]:
    inner: list[tirx.For] = []
    tvm_ffi.structural_walk(loop.body, [(tirx.For, inner.append)])
    return inner


Bent = list[tuple[Expr, np.ndarray]]
"""Nonlinear parts of indices, and their values in each iteration."""


def _bent(loop: tirx.For) -> Bent:
    indices: list[Expr] = []
    tvm_ffi.structural_walk(
        loop.body,
        [
            (TensorLoad, lambda load: indices.extend(load.indices)),
            (tirx.BufferStore, lambda store: indices.extend(store.indices)),
        ],
    )
    turns = np.arange(int(loop.extent))
    found: Bent = []
    for expr in (part for index in indices for part in _parts(index, loop.loop_var)):
        try:
            found.append((expr, values_of(expr, loop.loop_var, turns)))
        except Unknown:
            return []
    return found


def _parts(expr: Expr, counter: Var) -> Iterator[Expr]:
    """Yield the largest parts of an index that depend on the counter alone and are not linear in it."""
    read: set[Var] = set()
    loads: list[TensorLoad] = []
    others: list[Expr] = []
    tvm_ffi.structural_walk(
        expr,
        [
            (Var, read.add),
            (TensorLoad, loads.append),
            (Expr, lambda part: others.append(part) if not isinstance(part, _EVEN) else None),
        ],
    )
    if counter not in read or not others:
        return
    if len(read) == 1 and not loads:
        yield expr
    elif not isinstance(expr, TensorLoad):
        for operand in operands_of(expr):
            yield from _parts(operand, counter)


def _is_even(values: np.ndarray) -> bool:
    """Return True if the values are linear along both axes."""
    return all(not np.diff(np.diff(values, axis=axis), axis=other).any() for axis, other in ((0, 0), (1, 1), (0, 1)))


def _bends(values: np.ndarray) -> Iterator[int]:
    """Yield the first index of each linear run after the first run."""
    begin = 0
    while begin + 1 < len(values):
        steps = np.diff(values[begin:])
        other = np.flatnonzero(steps != steps[0])
        if not other.size:
            return
        begin += int(other[0]) + 1
        yield begin


def _nested(loop: tirx.For, bent: Bent, columns: int) -> tirx.For:
    outer, inner = _counter(loop), _counter(loop)
    rows = int(loop.extent) // columns

    def straight(values: np.ndarray) -> Expr:
        table = values.reshape(rows, columns)
        return _even(outer, table[:, 0]) + _even(inner, table[0] - table[0, 0])

    body = _with(loop, bent, outer * columns + inner, straight)
    within = tirx.For(inner, _in_type_of(loop, 0), _in_type_of(loop, columns), loop.kind, body)
    return tirx.For(outer, _in_type_of(loop, 0), _in_type_of(loop, rows), loop.kind, within)


def _straight_part(loop: tirx.For, bent: Bent, low: int, high: int) -> tirx.For:
    """Return a loop over iterations [low, high) of a loop, counted from zero, in which the indices are linear."""
    counter = _counter(loop)
    place = counter + _in_type_of(loop, low) if low else counter
    body = _with(loop, bent, place, lambda values: _even(counter, values[low:high]))
    return tirx.For(counter, _in_type_of(loop, 0), _in_type_of(loop, high - low), loop.kind, body)


def _with(loop: tirx.For, bent: Bent, place: Expr, straight: Callable[[np.ndarray], Expr]) -> tirx.Stmt:
    """Return the loop's body with `place` for its counter, and with linear expressions for its nonlinear parts."""

    def straightened(expr: Expr) -> Expr:
        for known, values in bent:
            if tvm_ffi.structural_equal(expr, known):
                return tirx.Cast(str(expr.ty.dtype), straight(values))
        return expr

    body = tvm_ffi.structural_map(loop.body, [(Expr, straightened)])
    return tvm_ffi.structural_map(body, [(Var, lambda var: place if var.same_as(loop.loop_var) else var)])


def _even(counter: Var, values: np.ndarray) -> Expr:
    dtype = str(counter.ty.dtype)
    step = int(values[1] - values[0]) if len(values) > 1 else 0
    return counter * tirx.IntImm(dtype, step) + tirx.IntImm(dtype, int(values[0]))


def _counter(loop: tirx.For) -> Var:
    return Var(loop.loop_var.name, loop.loop_var.ty)


def _in_type_of(loop: tirx.For, number: int) -> tirx.IntImm:
    return tirx.IntImm(str(loop.loop_var.ty.dtype), number)


_PLAIN = (tirx.BufferStore, tirx.IfThenElse, tirx.SeqStmt)
BLOCK = 4
"""Iterations that are written out in a block."""
LEAST_TURNS = 16
"""Iterations of a loop above which compilers do not unroll it themselves."""
MOST_OPERATIONS = 20
"""Limit of an iteration's operations for which the loop overhead matters; index arithmetic counts, invariants do
not."""


def block_loops(function: tirx.PrimFunc, *, keep_vectors: bool = False) -> tirx.PrimFunc:
    """Return the function with short loops unrolled into blocks of four iterations.

    keep_vectors: leave loops alone that compilers vectorize.
    """
    owners, analyzer = place_buffers(function.body).aliases, Analyzer()

    def block(loop: tirx.For) -> tirx.Stmt:
        is_kept = keep_vectors and is_vector(loop, LEAST_TURNS, owners, analyzer)
        return loop if is_kept or not _is_short(loop) else _blocked(loop)

    blocked = function.with_body(tvm_ffi.structural_map(function.body, [(tirx.For, block)]))
    return tirx.transform.StmtSimplify()(tvm.IRModule({"main": blocked}))["main"]


def _blocked(loop: tirx.For) -> tirx.Stmt:
    turns, counter = int(loop.extent), loop.loop_var
    whole, rest = turns // BLOCK * BLOCK, turns % BLOCK
    outer, inner = Var(counter.name, counter.ty), Var(counter.name, counter.ty)
    each = _block_turns(loop, inner, BLOCK, lambda place: outer * BLOCK + place)
    if _reads_places(loop.body):
        each = tirx.SeqStmt([_at(loop, outer * BLOCK + place) for place in range(BLOCK)])
    blocks = tirx.For(outer, _like(counter, 0), _like(counter, whole // BLOCK), loop.kind, each)
    if not rest:
        return blocks
    return tirx.SeqStmt([blocks, _block_turns(loop, Var(counter.name, counter.ty), rest, lambda place: place + whole)])


def _block_turns(loop: tirx.For, counter: Var, turns: int, place_of: Callable[[Var], Expr]) -> tirx.For:
    return tirx.For(counter, _like(counter, 0), _like(counter, turns), loop.kind, _at(loop, place_of(counter)))


def _at(loop: tirx.For, place: Expr) -> tirx.Stmt:
    """Return one iteration of the loop."""
    return tvm_ffi.structural_map(loop.body, [(Var, lambda var: place if var.same_as(loop.loop_var) else var)])


def _reads_places(body: tirx.Stmt) -> bool:
    """Return True if a load's index comes from a tensor:

    for several statements compilers keep their shared row pointer.
    """
    indices: list[Expr] = []
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(body, [(TensorLoad, lambda load: indices.extend(load.indices))])
    for index in indices:
        tvm_ffi.structural_walk(index, [(TensorLoad, loads.append)])
    return any(int(load.source.ty.shape[0]) > 1 for load in loads)  # one element is a variable


def is_block(loop: tirx.For) -> bool:
    """Return True for a loop of as many iterations as a block has."""
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == BLOCK


def _is_short(loop: tirx.For) -> bool:
    known = isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)
    if not known or int(loop.min) or loop.step is not None or int(loop.extent) < LEAST_TURNS:
        return False
    others: list[tirx.Stmt] = []
    tvm_ffi.structural_walk(
        loop.body, [(tirx.Stmt, lambda part: others.append(part) if not isinstance(part, _PLAIN) else None)]
    )
    return not others and _does_little(loop.body, loop.loop_var)


def _does_little(body: tirx.Stmt, counter: Var) -> bool:
    """Return True for few different operations that depend on the counter, none of which calls a function."""
    operations: set[int] = set()
    calls: list[Call] = []

    def visit(expr: Expr) -> None:
        if isinstance(expr, Call) and expr.op.name.rpartition(".")[2] not in CHEAP_CALLS:
            calls.append(expr)
        if not isinstance(expr, Var | Constant) and _reads(expr, counter):
            operations.add(tvm_ffi.structural_hash(expr))

    tvm_ffi.structural_walk(body, [(Expr, visit)])
    return not calls and len(operations) <= MOST_OPERATIONS


def _reads(expr: Expr, counter: Var) -> bool:
    found: list[Var] = []
    tvm_ffi.structural_walk(expr, [(Var, lambda var: found.append(var) if var.same_as(counter) else None)])
    return bool(found)


NARROW = ("int8", "uint8", "int16", "uint16")


@dataclass(frozen=True, kw_only=True, eq=False)
class NarrowBlock:
    """A block of floats, and the first of the adjacent elements to which their integers are stored."""

    values: tuple[Expr, ...]
    buffer: Var
    place: Expr
    dtype: str


def narrow_block(loop: tirx.For) -> NarrowBlock | None:
    """Return the block that a loop is; None for other loops."""
    store = loop.body
    if not is_block(loop) or not isinstance(store, tirx.BufferStore) or len(store.indices) != 1:
        return None
    cast = store.value
    if not isinstance(cast, tirx.Cast) or str(cast.ty.dtype) not in NARROW:
        return None
    if str(cast.value.ty.dtype) != "float32" or not reads_elements(cast.value) or clamped(cast) is not None:
        return None
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(cast.value, [(TensorLoad, loads.append)])
    if any(str(load.ty.dtype) == str(cast.ty.dtype) for load in loads):  # an earlier iteration may have stored it
        return None
    places = [_lane_at(store.indices[0], loop, turn) for turn in range(BLOCK)]
    steps = [Analyzer().simplify(place - places[0]) for place in places]
    if not all(isinstance(step, tirx.IntImm) and int(step) == turn for turn, step in enumerate(steps)):
        return None
    values = tuple(_lane_at(cast.value, loop, turn) for turn in range(BLOCK))
    return NarrowBlock(values=values, buffer=store.buffer, place=places[0], dtype=str(cast.ty.dtype))


def _lane_at(expr: Expr, loop: tirx.For, turn: int) -> Expr:
    """Return the expression in an iteration of the loop."""
    counter = loop.loop_var
    place = loop.min + tirx.IntImm(str(counter.ty.dtype), turn)
    there = tvm_ffi.structural_map(expr, [(Var, lambda var: place if var.same_as(counter) else var)])
    return Analyzer().simplify(there)
