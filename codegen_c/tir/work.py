"""Operations that plain loops execute, counted by kind: what a generic step costs, before a processor is known."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, Range, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.kernels.work import LANES, SAVED, Work
from codegen_c.tir.intrinsics import RENAMED
from codegen_c.tir.loops import operands
from codegen_c.tir.ranges import reads_elements
from codegen_c.tir.storage import UNROLLED, Storage

_UNROLLED_TURNS = 8
"""A C compiler writes loops of as few turns as statements behind each other."""
_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_RELATIONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)
_CALLS = {
    "sigmoid": ("exp", "arithmetic", "divide"),
    "rsqrt": ("sqrt", "divide"),
    "exp10": ("pow",),
    "isnan": ("compare",),
}
_FREE = ("likely", "reinterpret", "assume", "undef")


def work_of_loops(statement: tirx.Stmt, storage: Storage) -> Work:
    """Operations of one run, as a C compiler leaves them: equal ones once, and outside the loops they do not depend on.

    Of two branches the larger counts, of a loop the most turns there can be; bodies of `while` count once.
    storage: buffers of one element are variables, which nothing is loaded from.
    """
    stored: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(statement, [(tirx.BufferStore, stored.append)])
    counting = _Counting(storage, {store.buffer for store in stored})
    return dict(counting.statement(statement, (), set()))


Loops = tuple[tuple[Var, int], ...]
"""Counter and turns of the loops around a statement, the outermost first."""
Seen = set[tuple[int, int]]
"""Expressions that were computed in this scope already, by hash, and how many loops are around them."""


class _Counting:
    def __init__(self, storage: Storage, written: set[Var]) -> None:
        self._storage, self._scalars = storage, storage.scalars
        self._owners = storage.aliases
        self._written = {self._owner(buffer) for buffer in written}
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
            return condition + max(sides, key=Counter.total) + Counter(branch=turns)
        if isinstance(statement, tirx.While):
            return self._value(statement.condition, loops, seen) + self.statement(statement.body, loops, seen)
        if isinstance(statement, tirx.AttrStmt):
            return self.statement(statement.body, loops, seen)
        if isinstance(statement, tirx.BufferStore):
            found = self._value(statement.value, loops, seen)
            if self._owner(statement.buffer) not in self._scalars:
                found += Counter(store=turns)
            return found + _sum(self._value(index, loops, seen) for index in statement.indices)
        if isinstance(statement, tirx.Bind):
            return self._value(statement.value, loops, seen)
        return Counter()

    def _loop(self, loop: tirx.For, loops: Loops, outer_turns: int) -> Counter[str]:
        self._analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        step = int(loop.step) if loop.step is not None else 1
        turns = max(0, math.ceil(self._analyzer.const_int_bound(loop.extent).max_value / step))
        inside = self.statement(loop.body, (*loops, (loop.loop_var, turns)), set())
        if turns > _UNROLLED_TURNS:
            at_once = UNROLLED if self._storage.is_unrolled(loop) else 1
            inside += Counter(turn=outer_turns * -(-turns // at_once), loop=outer_turns)
        return Counter({**inside, **_saved(inside, turns, outer_turns)}) if self._is_vector(loop, turns) else inside

    def _is_vector(self, loop: tirx.For, turns: int) -> bool:
        """True where a compiler makes vectors of a loop: stores of neighbours, of what is loaded so or does not change.

        Choices, functions that no vector has, and sums of floats into one place are none.
        """
        stores: list[tirx.Stmt] = []
        others: list[Expr] = []
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(
            loop.body,
            [
                (tirx.Stmt, stores.append),
                (TensorLoad, loads.append),
                (Expr, lambda expr: others.append(expr) if _has_no_vector(expr) else None),
            ],
        )
        kinds_known = all(isinstance(statement, tirx.BufferStore | tirx.SeqStmt) for statement in stores)
        places = [(store.buffer, store.indices) for store in stores if isinstance(store, tirx.BufferStore)]
        if turns < LANES or not kinds_known or others or not places:
            return False
        written = {self._owner(buffer): indices for buffer, indices in places}
        for load in loads:  # of what is stored a turn reads its own element alone
            own = written.get(self._owner(load.source))
            if own is not None and not tvm_ffi.structural_equal(own, load.indices):
                return False
        steps = [self._step(indices, loop.loop_var) for _, indices in places]
        read = [self._step(load.indices, loop.loop_var) for load in loads]
        return all(step == 1 for step in steps) and all(step in (0, 1) for step in read)

    def _step(self, indices: Sequence[Expr], counter: Var) -> int | None:
        """Elements from one turn's place to the next one's; None where they differ."""
        if len(indices) != 1:
            return None
        place = indices[0]
        following = counter + tirx.const(1, counter.ty.dtype)
        after = tvm_ffi.structural_map(place, [(Var, lambda var: following if var.same_as(counter) else var)])
        step = self._analyzer.simplify(after - place)
        return int(step) if isinstance(step, tirx.IntImm) else None

    def _owner(self, buffer: Var) -> Var:
        return self._owners.get(buffer, buffer)

    def _value(self, expr: Expr, loops: Loops, seen: Seen) -> Counter[str]:
        depth = self._depth(expr, loops)
        key = (tvm_ffi.structural_hash(expr), depth)
        if key in seen:
            return Counter()
        seen.add(key)
        always, either = operands(expr)
        below = _sum(self._value(operand, loops, seen) for operand in always)
        below += _sum(self._value(side, loops, set(seen)) for side in either)
        times = math.prod(turns for _, turns in loops[:depth])
        return below + Counter(dict.fromkeys(self._kinds(expr), times))

    def _depth(self, expr: Expr, loops: Loops) -> int:
        """Loops that an expression cannot be computed outside of: all where it reads what changes, or calls."""
        counters: set[Var] = set()
        changes: list[Expr] = []
        tvm_ffi.structural_walk(
            expr,
            [
                (Var, counters.add),
                (TensorLoad, lambda load: changes.append(load) if self._owner(load.source) in self._written else None),
                (Call, lambda call: changes.append(call) if _function(call) not in ("if_then_else", *_FREE) else None),
            ],
        )
        if changes:
            return len(loops)
        return max((depth for depth, (var, _) in enumerate(loops, 1) if var in counters), default=0)

    def _kinds(self, expr: Expr) -> Iterator[str]:
        """Operations of an expression itself, beside those of its operands."""
        if isinstance(expr, TensorLoad):
            if self._owner(expr.source) not in self._scalars:
                yield "load"
        elif isinstance(expr, _DIVISIONS):
            family = _family(expr)
            by_constant = isinstance(expr.b, tirx.IntImm)
            name = "fmod" if isinstance(expr, tirx.Mod) and family in ("float", "double") else "divide"
            yield "quotient" if by_constant else f"{family} {name}"
        elif isinstance(expr, tirx.Min | tirx.Max):
            yield f"{_family(expr)} extreme"
        elif isinstance(expr, (*_RELATIONS, tirx.Select)):
            yield f"{_family(expr.a if isinstance(expr, _RELATIONS) else expr.true_value)} compare"
        elif isinstance(expr, tirx.Cast):
            yield from _of_cast(expr)
        elif isinstance(expr, Call):
            yield from _of_call(expr)
        elif not isinstance(expr, (tirx.IntImm, tirx.FloatImm, Var)) and (_is_float(expr) or reads_elements(expr)):
            yield f"{_family(expr)} arithmetic"  # sums and products of counters are carried from turn to turn


_VECTOR_CALLS = frozenset(
    ("fabs", "shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")
)


def _has_no_vector(expr: Expr) -> bool:
    """True for an operation that vectors do not have: of doubles, quotients, comparisons of floats, functions."""
    if isinstance(expr, Call):
        return _function(expr) not in (*_VECTOR_CALLS, *_FREE, "buffer_data")
    if isinstance(expr, tirx.Cast):
        return _family(expr) != _family(expr.value)
    if isinstance(expr, tirx.Min | tirx.Max | tirx.Select):
        return _is_float(expr)
    return isinstance(expr, (*_DIVISIONS, *_RELATIONS)) or _family(expr) in ("double", "long")


def _saved(inside: Counter[str], turns: int, outer_turns: int) -> dict[str, int]:
    """Operations that vectors save: whole ones take one for as many lanes, what is left is a loop of its own."""
    share = 1 - (turns // LANES + turns % LANES) / turns
    saved = {f"{SAVED}{kind}": round(count * share) for kind, count in inside.items() if kind != "loop"}
    return saved | ({"remainder": outer_turns} if turns % LANES else {})


def _of_cast(cast: tirx.Cast) -> Iterator[str]:
    to, of = _family(cast), _family(cast.value)
    if to == of:
        return
    if "double" in (to, of):
        yield "double cast"
    elif "float" in (to, of):
        yield "float cast" if to == "float" else "float truncate"


def _of_call(call: Call) -> Iterator[str]:
    name, family = _function(call), _family(call)
    if name in _FREE:
        return
    if name == "if_then_else":
        yield "branch"
    elif not _is_float(call) and name != "isnan":
        yield f"{family} arithmetic"
    else:
        family = _family(call.args[0]) if name == "isnan" else family
        yield from (f"{family} {part}" for part in _CALLS.get(name, (RENAMED.get(name, name),)))


def _function(call: Call) -> str:
    name = call.op.name.rpartition(".")[2]
    if name in ("call_pure_extern", "call_extern"):
        return str(call.args[0].value).removesuffix("f")
    return name


def _family(expr: Expr) -> str:
    dtype = str(expr.ty.dtype)
    return {"float64": "double", "int64": "long", "uint64": "long"}.get(
        dtype, "float" if "float" in dtype else "integer"
    )


def _is_float(expr: Expr) -> bool:
    return "float" in str(expr.ty.dtype)


def _sum(counts: Iterator[Counter[str]]) -> Counter[str]:
    return sum(counts, Counter())
