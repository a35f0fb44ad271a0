"""Operations that plain loops execute, counted by kind: what a generic step costs, before a processor is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, Range, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.kernels.work import LANES, SAVED, Work
from codegen_c.tir.evaluate import Unknown, values_over
from codegen_c.tir.families import DIVISIONS, FREE, RELATIONS, family, function_name, is_float
from codegen_c.tir.intrinsics import RENAMED
from codegen_c.tir.loops import operands
from codegen_c.tir.ranges import place_inside, reads_elements
from codegen_c.tir.storage import Storage
from codegen_c.tir.vectors import UNROLLED_TURNS, is_vector

_MOST_VALUES = 1 << 16
"""Turns of loops that are looked at to know how often a condition holds."""
_CALLS = {
    "sigmoid": ("exp", "arithmetic", "divide"),
    "rsqrt": ("sqrt", "divide"),
    "exp10": ("pow",),
    "isnan": ("compare",),
}
_PURE = ("if_then_else", "sqrt", "rsqrt", "fabs", "floor", "ceil", "trunc", "rint", "round", *FREE)
"""Calls that compilers take out of loops; others may set `errno`."""


def work_of_loops(statement: tirx.Stmt, storage: Storage) -> Work:
    """Operations of one run, as a C compiler leaves them: equal ones once, and outside the loops they do not depend on.

    Of two branches the larger counts, of a loop the most turns there can be; bodies of `while` count once.
    storage: buffers of one element are variables, which nothing is loaded from.
    """
    return dict(_Counting(storage).statement(statement, (), set()))


Loops = tuple[tuple[Var, int], ...]
"""Counter and turns of the loops around a statement, the outermost first."""
Seen = set[tuple[int, int]]
"""Expressions that were computed in this scope already, by hash, and how many loops are around them."""


class _Counting:
    def __init__(self, storage: Storage) -> None:
        self._scalars, self._arrays, self._owners = storage.scalars, storage.arrays, storage.aliases
        self._written: dict[Var, set[Var]] = {}
        self._analyzer = Analyzer()

    def statement(self, statement: tirx.Stmt, loops: Loops, seen: Seen) -> Counter[str]:
        """Operations of a statement in all turns of the loops around it."""
        turns = math.prod(turns for _, turns in loops)
        if isinstance(statement, tirx.SeqStmt):
            return _sum(self.statement(part, loops, seen) for part in statement.seq)
        if isinstance(statement, tirx.For):
            return self._loop(statement, loops, turns)
        if isinstance(statement, tirx.IfThenElse):
            sides = [self.statement(statement.then_case, loops, set(seen))]
            if statement.else_case is not None:
                sides.append(self.statement(statement.else_case, loops, set(seen)))
            condition = self._value(statement.condition, loops, seen)
            share = 1.0 if len(sides) > 1 else self._share(statement.condition, loops)
            taken = {kind: round(share * times) for kind, times in max(sides, key=Counter.total).items()}
            return condition + Counter(taken) + Counter(branch=turns)
        if isinstance(statement, tirx.While):
            return self._value(statement.condition, loops, seen) + self.statement(statement.body, loops, seen)
        if isinstance(statement, tirx.AttrStmt):
            return self.statement(statement.body, loops, seen)
        if isinstance(statement, tirx.BufferStore):
            found = self._value(statement.value, loops, seen)
            owner = self._owner(statement.buffer)
            if owner in self._arrays:  # nothing else lies there: it is kept until its place changes
                read = _variables(statement.indices)
                depth = max((depth for depth, (var, _) in enumerate(loops, 1) if var in read), default=0)
                found += Counter(store=math.prod(turns for _, turns in loops[:depth]))
            elif owner not in self._scalars:
                found += Counter(store=turns)
            if str(statement.value.ty.dtype) == "bool" and not isinstance(statement.value, TensorLoad):
                found += Counter(truth=turns)
            return found + _sum(self._value(index, loops, seen) for index in statement.indices)
        if isinstance(statement, tirx.Bind):
            return self._value(statement.value, loops, seen)
        return Counter()

    def _loop(self, loop: tirx.For, loops: Loops, outer_turns: int) -> Counter[str]:
        self._analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        step = int(loop.step) if loop.step is not None else 1
        turns = max(0, math.ceil(self._analyzer.const_int_bound(loop.extent).max_value / step))
        self._written[loop.loop_var] = self._stored(loop.body)
        inside = self.statement(loop.body, (*loops, (loop.loop_var, turns)), set())
        if turns > UNROLLED_TURNS:
            inside += Counter(turn=outer_turns * turns, loop=outer_turns)
        if not is_vector(loop, turns, self._owners, self._analyzer, self._scalars):
            return inside
        return Counter({**inside, **_saved(inside, turns, outer_turns)})

    def _stored(self, statement: tirx.Stmt) -> set[Var]:
        found: set[Var] = set()
        tvm_ffi.structural_walk(statement, [(tirx.BufferStore, lambda store: found.add(self._owner(store.buffer)))])
        return found

    def _share(self, condition: Expr, loops: Loops) -> float:
        """Part of the turns in which a condition of counters holds; 1 for others."""
        counters = [(var, turns) for var, turns in loops if var in _variables([condition])]
        if reads_elements(condition) or math.prod(turns for _, turns in counters) > _MOST_VALUES:
            return 1.0
        grid = np.meshgrid(*(np.arange(turns) for _, turns in counters), indexing="ij", sparse=True)
        try:
            return float(values_over(condition, dict(zip((var for var, _ in counters), grid, strict=True))).mean())
        except Unknown:
            return 1.0

    def _owner(self, buffer: Var) -> Var:
        return self._owners.get(buffer, buffer)

    def _value(self, expr: Expr, loops: Loops, seen: Seen) -> Counter[str]:
        depth = self._depth(expr, loops)
        key = (tvm_ffi.structural_hash(expr), depth)
        if key in seen:
            return Counter()
        seen.add(key)
        inside = place_inside(expr)
        always, either = (inside, ()) if inside is not None else operands(expr)
        below = _sum(self._value(operand, loops, seen) for operand in always)
        below += _sum(self._value(side, loops, set(seen)) for side in either)
        times = math.prod(turns for _, turns in loops[:depth])
        return below + Counter(dict.fromkeys(self._kinds(expr), times))

    def _depth(self, expr: Expr, loops: Loops) -> int:
        """Loops that an expression cannot be computed outside of: those that change what it reads, all for a call."""
        read: set[Var] = set()
        calls: list[Call] = []
        tvm_ffi.structural_walk(
            expr,
            [
                (Var, read.add),
                (TensorLoad, lambda load: read.add(self._owner(load.source))),
                (Call, lambda call: calls.append(call) if function_name(call) not in _PURE else None),
            ],
        )
        if calls:
            return len(loops)
        if isinstance(expr, TensorLoad) and self._owner(expr.source) in self._arrays:
            read = _variables(expr.indices)
        changing = (depth for depth, (var, _) in enumerate(loops, 1) if var in read or self._written[var] & read)
        return max(changing, default=0)

    def _kinds(self, expr: Expr) -> Iterator[str]:
        """Operations of an expression itself, beside those of its operands."""
        if isinstance(expr, TensorLoad):
            if self._owner(expr.source) not in self._scalars:
                yield "load"
        elif isinstance(expr, DIVISIONS):
            by_constant = isinstance(expr.b, tirx.IntImm)
            name = "fmod" if isinstance(expr, tirx.Mod) and is_float(expr) else "divide"
            yield "quotient" if by_constant else f"{family(expr)} {name}"
        elif isinstance(expr, tirx.Min | tirx.Max):
            yield f"{family(expr)} {self._extreme(expr)}"
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
        elif not isinstance(expr, (tirx.IntImm, tirx.FloatImm, Var)) and (is_float(expr) or self._reads_memory(expr)):
            # Sums and products of counters, and of what does not change, are carried from turn to turn.
            is_product = isinstance(expr, tirx.Mul) and is_float(expr)
            yield f"{family(expr)} {'product' if is_product else 'arithmetic'}"

    def _reads_memory(self, expr: Expr) -> bool:
        """True where an element is read that is no variable."""
        found: list[TensorLoad] = []
        tvm_ffi.structural_walk(expr, [(TensorLoad, found.append)])
        return any(self._owner(load.source) not in self._scalars for load in found)

    def _extreme(self, expr: tirx.Min | tirx.Max) -> str:
        """`place` inside of a buffer, `limit` of a float or of what one so far is, or `extreme` of two."""
        if place_inside(expr) is not None:
            return "place"
        so_far = isinstance(expr.a, TensorLoad) and self._owner(expr.a.source) in self._scalars
        return "limit" if is_float(expr) and (so_far or isinstance(expr.b, tirx.FloatImm)) else "extreme"


def _variables(indices: Sequence[Expr]) -> set[Var]:
    found: set[Var] = set()
    for index in indices:
        tvm_ffi.structural_walk(index, [(Var, found.add)])
    return found


def _saved(inside: Counter[str], turns: int, outer_turns: int) -> dict[str, int]:
    """Operations that vectors save: whole ones take one for as many lanes, what is left is a loop of its own."""
    share = 1 - (turns // LANES + turns % LANES) / turns
    saved = {f"{SAVED}{kind}": round(count * share) for kind, count in inside.items() if kind != "loop"}
    return saved | ({"remainder": outer_turns} if turns % LANES else {})


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


def _sum(counts: Iterator[Counter[str]]) -> Counter[str]:
    return sum(counts, Counter())
