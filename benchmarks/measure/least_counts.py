"""Loads, stores and arithmetic of an operator's data, the least that any code for its definition executes.

Counted on TVM's own definition, before anything is scheduled: one load for each time that it reads an element of an
input or of a constant, one store for each element of an output, one instruction for each sum, product, quotient,
comparison, choice, extreme or conversion of data, and for a function of math.h what a call of it executes.

- What does not depend on the inner loops of the definition is read and computed once outside of them.
- Indices, loop counters, and what is computed of them alone count nothing. Of a choice by counters (padding,
  concatenation) each element counts the side that it takes.
- Intermediates are neither stored nor loaded; one that merely moves elements, as padding does, is looked through:
  reading it is reading its source. What one element reads twice, in several steps of a chain, counts once.
- The value with which a sum begins counts nothing, nor do checks of places that an input holds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, StringImm, TensorLoad, Var

from codegen_c.tir.intrinsics import RENAMED, SAME_NAME
from codegen_c.tir.legalize import PrimFuncStages
from codegen_c.tir.loops import operands, operands_of
from codegen_c.tir.lower import plain_loops
from codegen_c.tir.merge import merge_stages
from codegen_c.tir.ranges import reads_elements
from codegen_c.tir.tabulate import values_over

FUNCTIONS = SAME_NAME
"""Kinds of counts that are functions of math.h, by the names they have for doubles."""
_FREE = ("likely", "reinterpret", "assume", "undef")
_CALLS = {
    "sigmoid": {"exp": 1, "arithmetic": 3}, "rsqrt": {"sqrt": 1, "arithmetic": 1}, "exp10": {"pow": 1},
    "isnan": {"arithmetic": 1}, "isinf": {"fabs": 1, "arithmetic": 1}, "isfinite": {"fabs": 1, "arithmetic": 1},
    "if_then_else": {"arithmetic": 1},
}  # fmt: skip


def least_counts(composite: PrimFuncStages) -> dict[str, int]:
    """Times of `load`, `store`, `arithmetic`, and of each function of math.h by its name."""
    merged = merge_stages(composite)
    function = plain_loops(merged.function)
    counting = _Counting(body=function.body)
    counting.statement(function.body, ())
    outputs = function.params[merged.num_inputs : merged.num_inputs + merged.num_outputs]
    stored = sum(math.prod(int(extent) for extent in output.ty.shape) for output in outputs)
    return {**counting.found, "store": stored}


def least_instructions(counts: Mapping[str, int], functions: Mapping[str, float]) -> int:
    """Instructions of counts; functions: of one call of each function of math.h."""
    return round(sum(times * functions.get(kind, 1.0) for kind, times in counts.items()))


@dataclass(frozen=True, kw_only=True)
class _Around:
    """A loop around a statement."""

    counter: Var
    begin: int
    turns: int


@dataclass(frozen=True, kw_only=True)
class _Scope:
    """Where an expression stands. mask: turns of the loops that come to it, None: all. seen: what was counted there."""

    loops: tuple[_Around, ...]
    written: frozenset[Var]
    mask: np.ndarray | None = None
    seen: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]])

    def key(self, expr: Expr) -> tuple[int, ...]:
        """The expression, whatever its loops' counters are called."""
        counters: list[Var] = []
        tvm_ffi.structural_walk(expr, [(Var, counters.append)])
        depths = {around.counter: depth for depth, around in enumerate(self.loops)}
        named = ((depths[var], self.loops[depths[var]].turns) if var in depths else (-1, hash(var)) for var in counters)
        return tvm_ffi.structural_hash(expr, map_free_vars=True), *(number for pair in named for number in pair)

    def times(self, expr: Expr) -> int:
        """Turns in which it is computed: those of the loops that it depends on, and of the loops around them."""
        if self.mask is not None:
            return int(self.mask.sum())
        read: set[Var] = set()
        sources: set[Var] = set()
        tvm_ffi.structural_walk(expr, [(Var, read.add), (TensorLoad, lambda load: sources.add(load.source))])
        if sources & self.written:
            return math.prod(around.turns for around in self.loops)
        depth = max((depth for depth, around in enumerate(self.loops, 1) if around.counter in read), default=0)
        return math.prod(around.turns for around in self.loops[:depth])

    def sides(self, expr: Expr) -> list[tuple[Expr, _Scope]] | None:
        """Both sides of a choice by counters, each in its turns; None for anything else."""
        always, either = operands(expr)
        if not either or any(map(reads_elements, always)):
            return None
        shape = tuple(around.turns for around in self.loops)
        turns = (around.begin + np.arange(around.turns) for around in self.loops)
        grid = np.meshgrid(*turns, indexing="ij", sparse=True)
        counters = dict(zip((around.counter for around in self.loops), grid, strict=True))
        chosen = np.broadcast_to(values_over(always[0], counters), shape)
        mask = self.mask if self.mask is not None else np.ones(shape, bool)
        return [
            (side, replace(self, mask=mask & taken, seen=set(self.seen)))
            for side, taken in zip(either, (chosen, ~chosen), strict=True)
        ]


@dataclass(kw_only=True)
class _Counting:
    """Counts of the statements that were walked; places: loads of elementwise steps since the last reduction."""

    body: tirx.Stmt
    found: Counter[str] = field(default_factory=Counter[str])
    places: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]])

    def __post_init__(self) -> None:
        self.moves: dict[Var, bool] = {}
        self.owners: dict[Var, Var] = {}
        self.allocated: set[Var] = set()
        tvm_ffi.structural_walk(
            self.body,
            [
                (tirx.AllocBuffer, lambda alloc: self.allocated.add(alloc.buffer)),
                (tirx.DeclBuffer, lambda view: self.owners.update({view.buffer: view.data.args[0]})),
                (tirx.BufferStore, self._stored),
            ],
        )

    def statement(self, statement: tirx.Stmt, loops: tuple[_Around, ...]) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                if not loops and self._runs_on(part):
                    self.places.clear()
                self.statement(part, loops)
                if not loops and self._runs_on(part):
                    self.places.clear()
        elif isinstance(statement, tirx.For):
            turns = int(statement.extent)
            around = _Around(counter=statement.loop_var, begin=int(statement.min), turns=turns)
            self.statement(statement.body, (*loops, around))
        elif isinstance(statement, tirx.IfThenElse):
            if reads_elements(statement.condition):  # another one tells where a sum begins
                if not _stores_at_places(statement.then_case):
                    self._value(statement.condition, _Scope(loops=loops, written=self._written(statement)))
                self.statement(statement.then_case, loops)
        elif isinstance(statement, tirx.AttrStmt | tirx.While):
            self.statement(statement.body, loops)
        elif isinstance(statement, tirx.Bind):
            self._value(statement.value, _Scope(loops=loops, written=frozenset()))
        elif isinstance(statement, tirx.BufferStore):
            self._store(statement, loops)

    def _store(self, store: tirx.BufferStore, loops: tuple[_Around, ...]) -> None:
        if self.moves[self._owner(store.buffer)] and self._owner(store.buffer) in self.allocated:
            return
        scope = _Scope(loops=loops, written=self._written(store))
        self._value(store.value, scope)
        for index in store.indices:
            self._value(index, scope, is_index=True)

    def _value(self, expr: Expr, scope: _Scope, *, is_index: bool = False) -> None:
        if not reads_elements(expr):
            return
        key = scope.key(expr)
        if key in scope.seen:
            return
        scope.seen.add(key)
        if isinstance(expr, TensorLoad):
            owner = self._owner(expr.source)
            if (owner not in self.allocated | scope.written) or self.moves.get(owner, False):
                place = (hash(owner), *scope.key(expr)) if scope.mask is None else ()
                if not place or place not in self.places:
                    self.places.add(place)
                    self.found["load"] += scope.times(expr)
            for index in expr.indices:
                self._value(index, scope, is_index=True)
            return
        sides = scope.sides(expr)
        if sides is not None:
            for side, inner in sides:
                self._value(side, inner, is_index=is_index)
            return
        for operand in operands_of(expr):
            self._value(operand, scope, is_index=is_index)
        if not is_index:
            for kind, each in _kinds(expr).items():
                self.found[kind] += each * scope.times(expr)

    def _written(self, statement: tirx.Stmt) -> frozenset[Var]:
        found: set[Var] = set()
        tvm_ffi.structural_walk(statement, [(tirx.BufferStore, lambda store: found.add(self._owner(store.buffer)))])
        return frozenset(found | {var for var in self.allocated if self.moves.get(var) is False and _is_one(var)})

    def _stored(self, store: tirx.BufferStore) -> None:
        owner = self._owner(store.buffer)
        self.moves[owner] = self.moves.get(owner, True) and self._is_move(store) and not _is_one(owner)

    def _is_move(self, store: tirx.BufferStore) -> bool:
        computed: list[str] = []

        def visit(expr: Expr) -> None:
            if isinstance(expr, TensorLoad) or not reads_elements(expr):
                return
            always, either = operands(expr)
            if not either or any(map(reads_elements, always)):
                computed.append(type(expr).__name__)
            for side in either:
                visit(side)

        visit(store.value)
        return not computed

    def _runs_on(self, statement: tirx.Stmt) -> bool:
        """True where a statement reads what it writes, as reductions do."""
        read, written = set[Var](), set[Var]()
        tvm_ffi.structural_walk(
            statement,
            [
                (TensorLoad, lambda load: read.add(self._owner(load.source))),
                (tirx.BufferStore, lambda store: written.add(self._owner(store.buffer))),
            ],
        )
        return bool(read & written)

    def _owner(self, buffer: Var) -> Var:
        return self.owners.get(buffer, buffer)


def _is_one(buffer: Var) -> bool:
    """True for a buffer of one element, which is a variable."""
    return math.prod(int(extent) for extent in buffer.ty.shape) == 1


def _stores_at_places(statement: tirx.Stmt) -> bool:
    """True where a store's place is one that an input holds: a condition around it keeps it inside."""
    return isinstance(statement, tirx.BufferStore) and any(map(reads_elements, statement.indices))


def _kinds(expr: Expr) -> Mapping[str, int]:
    """Kinds of instructions of an operation of data, and how many; its operands are not counted."""
    if not isinstance(expr, Call):
        is_nothing = isinstance(expr, tirx.Cast) and str(expr.ty.dtype) == str(expr.value.ty.dtype)
        if isinstance(expr, tirx.Mod) and "float" in str(expr.ty.dtype):
            return {"fmod": 1}
        return {} if is_nothing else {"arithmetic": 1}
    name = expr.op.name.rpartition(".")[2]
    if name in ("call_pure_extern", "call_extern"):
        assert isinstance(expr.args[0], StringImm)
        name = str(expr.args[0].value).removesuffix("f")
    if name in _FREE:
        return {}
    name = RENAMED.get(name, name)
    return _CALLS.get(name, {name if name in SAME_NAME else "arithmetic": 1})
