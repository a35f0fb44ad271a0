"""Row pointers of inner loops: the invariant part of an index is computed once.

Compilers do not hoist this part beside loads of index tables, and compute it once per value of a choice or an input.

    for j: y[j] = x[i * 480 + table[j]]   ->   row = &x[i * 480]; for j: y[j] = row[table[j]]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.tir.shape_loops import is_block
from codegen_c.tir.tabulate import Unknown, values_over

_DEAR = (tirx.Select, tirx.Min, tirx.Max, tirx.FloorDiv, tirx.FloorMod)
MOST_VALUES = 1 << 20
"""Limit of the index values that are evaluated to find bounds."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The part of a load's index that an inner loop does not change (begin), and the part that it adds (rest)."""

    buffer: Var
    begin: Expr
    index: Expr
    rest: Expr


@dataclass(frozen=True, kw_only=True)
class NamedRow:
    """A pointer that replaces the begin of an index, and the rest of that index."""

    name: str
    index: Expr
    rest: Expr


NamedRows = dict[tuple[Var, int], NamedRow]
"""Named rows by buffer and hash of the index."""


def row_of(rows: NamedRows, buffer: Var, index: Expr) -> NamedRow | None:
    """Return the named row of an element, if it has a pointer."""
    row = rows.get((buffer, tvm_ffi.structural_hash(index)))
    return row if row is not None and tvm_ffi.structural_equal(row.index, index) else None


@dataclass(frozen=True, kw_only=True)
class Around:
    """Values of the counters of enclosing loops, elements of tables, and bounds of variables.

    places: least and largest value of the variables that hold the begin of a row.
    """

    turns: Mapping[Var, np.ndarray]
    tables: Mapping[Var, np.ndarray]
    places: Mapping[Var, tuple[int, int]]

    def inside(self, loop: tirx.For) -> Around:
        """Return the same facts inside a loop, if it begins at a constant and has a constant number of iterations."""
        if not (isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)) or loop.step is not None:
            return self
        return replace(self, turns={**self.turns, loop.loop_var: int(loop.min) + np.arange(int(loop.extent))})


def rows_of(loop: tirx.For, around: Around) -> list[Row]:
    """Return the rows that an innermost loop, or a loop around its blocks, reads; each begins inside its buffer."""
    counters, inner = {loop.loop_var}, list[tirx.For]()
    tvm_ffi.structural_walk(loop.body, [(tirx.For, inner.append)])
    if inner and not (isinstance(loop.body, tirx.For) and len(inner) == 1 and is_block(inner[0])):
        return []
    counters |= {one.loop_var for one in inner}
    loads: list[TensorLoad] = []
    written: set[Var] = set()
    tvm_ffi.structural_walk(
        loop.body, [(TensorLoad, loads.append), (tirx.BufferStore, lambda store: written.add(store.buffer))]
    )
    inside = around.inside(loop) if not inner else around.inside(loop).inside(inner[0])
    found = (_row(load, counters | written, inside) for load in loads if len(load.indices) == 1)
    return [row for row in found if row is not None]


def _row(load: TensorLoad, changing: set[Var], around: Around) -> Row | None:
    parts = sorted(_terms(load.indices[0]), key=lambda part: part[1])
    begins = [part for part in parts if not _read(part[0]) & changing]
    rests = [part for part in parts if _read(part[0]) & changing]
    rests += [part for part in begins if isinstance(part[0], tirx.IntImm)]
    begins = [part for part in begins if not isinstance(part[0], tirx.IntImm)]
    is_by_table = any(_reads(part) for part, _ in rests)
    if not begins or not rests or not (is_by_table or any(_is_dear(part, around) for part, _ in begins)):
        return None
    begin, rest = _sum(begins), _sum(rests)
    bounds = _bounds(begin, around)
    if bounds is None:
        return None
    moved = max(0, -bounds[0])  # C does not allow a pointer before the begin of its buffer
    if bounds[1] + moved >= int(load.source.ty.shape[0]):
        return None
    simplify = Analyzer().simplify
    return Row(
        buffer=load.source, begin=simplify(begin + moved), index=load.indices[0], rest=simplify(rest - moved)
    )  # fmt: skip


def _terms(expr: Expr, *, is_less: bool = False) -> Iterator[tuple[Expr, bool]]:
    """Yield the terms of a sum, each with True if it is subtracted."""
    if isinstance(expr, tirx.Add | tirx.Sub):
        yield from _terms(expr.a, is_less=is_less)
        yield from _terms(expr.b, is_less=is_less != isinstance(expr, tirx.Sub))
    else:
        yield expr, is_less


def _sum(parts: list[tuple[Expr, bool]]) -> Expr:
    first, is_less = parts[0]
    total = tirx.Sub(tirx.const(0, first.ty.dtype), first) if is_less else first
    for part, is_less in parts[1:]:
        total = tirx.Sub(total, part) if is_less else tirx.Add(total, part)
    return total


def _read(expr: Expr) -> set[Var]:
    found: set[Var] = set()
    tvm_ffi.structural_walk(expr, [(Var, found.add), (TensorLoad, lambda load: found.add(load.source))])
    return found


def _is_dear(expr: Expr, around: Around) -> bool:
    """Return True for choices, quotients and values of inputs, which compilers would compute once per value."""
    found: list[Expr] = []
    tvm_ffi.structural_walk(expr, [(kind, found.append) for kind in _DEAR])
    return bool(found) or bool(_read(expr) & around.places.keys())


def _reads(expr: Expr) -> bool:
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, [(TensorLoad, loads.append)])
    return bool(loads)


def _bounds(expr: Expr, around: Around) -> tuple[int, int] | None:
    """Return the least and largest value of an index; None if it reads more than loop counters and tables."""
    counters = sorted(_read(expr) & around.turns.keys(), key=lambda var: var.name)
    if math.prod(around.turns[counter].size for counter in counters) > MOST_VALUES:
        return None
    grid = np.meshgrid(*(around.turns[counter] for counter in counters), indexing="ij", sparse=True)
    known = {**dict(zip(counters, grid, strict=True)), **around.tables}
    if _read(expr) & around.places.keys() and any(is_less for _, is_less in _terms(expr)):
        return None
    try:
        low, high = (
            values_over(expr, known | {place: np.array([bounds[end]]) for place, bounds in around.places.items()})
            for end in (0, 1)
        )
    except Unknown:
        return None
    return int(low.min()), int(high.max())
