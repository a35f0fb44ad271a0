"""Count the operations that plain loops execute, by kind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, Range, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.kernels.work import LANES, SAVED, Work
from codegen_c.tir.intrinsics import DIVISIONS, FREE, RELATIONS, RENAMED, SAME_NAME, family, function_name, is_float
from codegen_c.tir.loops import operands
from codegen_c.tir.ranges import place_inside, reads_elements
from codegen_c.tir.shape_loops import narrow_block
from codegen_c.tir.storage import Storage
from codegen_c.tir.tabulate import Unknown, values_over
from codegen_c.tir.vectors import UNROLLED_TURNS, is_vector, turns_written_out

_MOST_VALUES = 1 << 16
"""Limit of the iterations that are evaluated to find how often a condition holds."""
_PURE = ("if_then_else", "sqrt", "rsqrt", "fabs", "floor", "ceil", "trunc", "rint", "round", *FREE)
"""Calls that compilers hoist out of loops; others may set `errno`."""


def work_of_loops(statement: tirx.Stmt, storage: Storage) -> Work:
    """Return the operations of one run after common subexpression elimination and hoisting by the C compiler.

    Of two branches the larger counts, of a loop its maximum of iterations; bodies of `while` count once. storage:
    buffers of one element are variables, which need no load.
    """
    return dict(_Counting(storage).statement(statement, (), set()))


Loops = tuple[tuple[Var, int], ...]
"""Counter and iterations of the loops around a statement, the outermost first."""
Seen = set[tuple[int, int]]
"""Expressions that this scope has computed already, by hash and number of enclosing loops."""


class _Counting:
    def __init__(self, storage: Storage) -> None:
        self._scalars, self._arrays, self._owners = storage.scalars, storage.arrays, storage.aliases
        self._written: dict[Var, set[Var]] = {}
        self._copied: set[Var] = set()  # counters of unrolled loops
        self._kept: tuple[Var, Expr] | None = None  # the stored element and value of the previous iteration
        self._analyzer = Analyzer()

    def statement(self, statement: tirx.Stmt, loops: Loops, seen: Seen) -> Counter[str]:
        """Return the operations of a statement in all iterations of the enclosing loops."""
        turns = math.prod(turns for _, turns in loops)
        if isinstance(statement, tirx.SeqStmt):
            return _sum(self.statement(part, loops, seen) for part in statement.seq)
        if isinstance(statement, tirx.For):
            return self._loop(statement, loops, turns)
        if isinstance(statement, tirx.IfThenElse):
            return self._branch(statement, loops, seen)
        if isinstance(statement, tirx.While):
            return self._value(statement.condition, loops, seen) + self.statement(statement.body, loops, seen)
        if isinstance(statement, tirx.AttrStmt):
            return self.statement(statement.body, loops, seen)
        if isinstance(statement, tirx.BufferStore):
            return self._store(statement, loops, seen)
        if isinstance(statement, tirx.Bind):
            return self._value(statement.value, loops, seen)
        return Counter()

    def _store(self, store: tirx.BufferStore, loops: Loops, seen: Seen) -> Counter[str]:
        turns = math.prod(turns for _, turns in loops)
        owner = self._owner(store.buffer)
        self._kept = self._turn_before(owner, store, loops)
        found = self._value(store.value, loops, seen)
        self._kept = None
        if owner in self._arrays:  # no other value shares the register: it is kept until its index changes
            read = _variables(store.indices)
            depth = max((depth for depth, (var, _) in enumerate(loops, 1) if var in read), default=0)
            found += Counter(store=math.prod(turns for _, turns in loops[:depth]))
        elif owner not in self._scalars:
            found += Counter(store=turns)
        if str(store.value.ty.dtype) == "bool" and not isinstance(store.value, TensorLoad):
            found += Counter(truth=turns)
        return found + _sum(self._value(index, loops, seen) for index in store.indices)

    def _loop(self, loop: tirx.For, loops: Loops, outer_turns: int) -> Counter[str]:
        self._analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
        step = int(loop.step) if loop.step is not None else 1
        turns = max(0, math.ceil(self._analyzer.const_int_bound(loop.extent).max_value / step))
        self._written[loop.loop_var] = self._stored(loop.body)
        if turns_written_out(loop) is not None:
            self._copied.add(loop.loop_var)
        inside = self.statement(loop.body, (*loops, (loop.loop_var, turns)), set())
        if narrow_block(loop) is not None:
            narrow = min(inside["float truncate"], outer_turns * turns)
            inside += Counter({"float narrow": narrow, "float truncate": -narrow})
        if turns > UNROLLED_TURNS:
            inside += Counter({turn_kind(inside): outer_turns * turns, "loop": outer_turns})
        if not is_vector(loop, turns, self._owners, self._analyzer, self._scalars):
            return inside
        return Counter({**inside, **saved_by_vectors(inside, turns, outer_turns)})

    def _branch(self, branch: tirx.IfThenElse, loops: Loops, seen: Seen) -> Counter[str]:
        """Return the operations of a branch; in an unrolled loop, each iteration has a branch of its own."""
        copied, self._copied = self._copied, set[Var]()
        sides = [self.statement(branch.then_case, loops, set(seen))]
        if branch.else_case is not None:
            sides.append(self.statement(branch.else_case, loops, set(seen)))
        condition = self._value(branch.condition, loops, seen)
        self._copied = copied
        return (
            condition
            + Counter(branch=math.prod(turns for _, turns in loops))
            + self._taken(branch.condition, loops, sides)
        )

    def _taken(self, condition: Expr, loops: Loops, sides: list[Counter[str]]) -> Counter[str]:
        """Return the operations of both sides by their share of the iterations; of the larger side if unknown."""
        share = self._share(condition, loops)
        if share is None:
            return max(sides, key=Counter.total)
        return _sum(
            Counter({kind: round(part * times) for kind, times in side.items()})
            for part, side in zip((share, 1 - share), sides, strict=False)
        )

    def _turn_before(self, owner: Var, store: tirx.BufferStore, loops: Loops) -> tuple[Var, Expr] | None:
        """Return the element that the previous iteration stored, whose value is still in a register."""
        if not loops or len(store.indices) != 1:
            return None
        counter = loops[-1][0]
        before = counter - tirx.IntImm(str(counter.ty.dtype), 1)
        place = tvm_ffi.structural_map(store.indices[0], [(Var, lambda var: before if var.same_as(counter) else var)])
        return owner, place

    def _is_kept(self, load: TensorLoad) -> bool:
        if self._kept is None or not self._owner(load.source).same_as(self._kept[0]):
            return False
        distance = self._analyzer.simplify(load.indices[0] - self._kept[1])
        return isinstance(distance, tirx.IntImm) and int(distance) == 0

    def _stored(self, statement: tirx.Stmt) -> set[Var]:
        found: set[Var] = set()
        tvm_ffi.structural_walk(statement, [(tirx.BufferStore, lambda store: found.add(self._owner(store.buffer)))])
        return found

    def _share(self, condition: Expr, loops: Loops) -> float | None:
        """Return the share of iterations in which a condition on counters holds; None for other conditions."""
        counters = [(var, turns) for var, turns in loops if var in _variables([condition])]
        if reads_elements(condition) or math.prod(turns for _, turns in counters) > _MOST_VALUES:
            return None
        grid = np.meshgrid(*(np.arange(turns) for _, turns in counters), indexing="ij", sparse=True)
        try:
            return float(values_over(condition, dict(zip((var for var, _ in counters), grid, strict=True))).mean())
        except Unknown:
            return None

    def _owner(self, buffer: Var) -> Var:
        return self._owners.get(buffer, buffer)

    def _value(self, expr: Expr, loops: Loops, seen: Seen, *, is_side: bool = False) -> Counter[str]:
        """Return the operations of an expression.

        is_side: the expression is a branch of a choice, so its loads are not hoisted out of it.
        """
        depth = self._depth(expr, loops)
        key = (tvm_ffi.structural_hash(expr), depth)
        if key in seen:
            return Counter()
        seen.add(key)
        depth = len(loops) if is_side and isinstance(expr, TensorLoad) else depth
        inside = place_inside(expr)
        always, either = (inside, ()) if inside is not None else operands(expr)
        is_choice = bool(either) and not self._is_known(always[0])
        below = (
            self._condition(always[0], loops, seen)
            if is_choice
            else _sum(self._value(operand, loops, seen, is_side=is_side) for operand in always)
        )
        below += _sum(self._value(side, loops, set(seen), is_side=is_side or is_choice) for side in either)
        if self._is_known(expr):
            return below
        times = self._times(expr, loops, depth)
        found = Counter(dict.fromkeys(self._kinds(expr), times))
        if found["branch"] and _variables(always) & self._copied and not _divides(always[0]):
            found["branch"] = self._times(always[0], loops, self._depth(always[0], loops)) if is_choice else 0
        return below + found

    def _kinds(self, expr: Expr) -> Iterator[str]:
        if isinstance(expr, TensorLoad) and self._is_kept(expr):
            return iter(())
        return kinds_of(expr, self._is_variable)

    def _is_variable(self, buffer: Var) -> bool:
        return self._owner(buffer) in self._scalars

    def _condition(self, condition: Expr, loops: Loops, seen: Seen) -> Counter[str]:
        """Return the operations of a choice's condition; compilers do not evaluate a division at compile time."""
        if not _divides(condition):
            return self._value(condition, loops, seen)
        copied, self._copied = self._copied, set[Var]()
        found = self._value(condition, loops, seen)
        self._copied = copied
        return found

    def _is_known(self, expr: Expr) -> bool:
        """Return True for expressions of the counters of unrolled loops alone, which compilers evaluate."""
        return not reads_elements(expr) and _variables([expr]) <= self._copied

    def _times(self, expr: Expr, loops: Loops, depth: int) -> int:
        """Return how often an expression is computed; unrolled loops count iterations with different operands."""
        read = self._reads(expr)
        return math.prod(
            turns
            for var, turns in loops[:depth]
            if var not in self._copied or var in read or self._written[var] & read or _calls(expr)
        )

    def _reads(self, expr: Expr) -> set[Var]:
        """Return the counters and buffers that an expression reads; of an array in registers, what its indices read."""
        read = _variables([expr])
        if isinstance(expr, TensorLoad) and self._owner(expr.source) in self._arrays:
            return _variables(expr.indices)
        tvm_ffi.structural_walk(expr, [(TensorLoad, lambda load: read.add(self._owner(load.source)))])
        return read

    def _depth(self, expr: Expr, loops: Loops) -> int:
        """Return how many enclosing loops an expression depends on; all of them for a call."""
        if _calls(expr):
            return len(loops)
        read = self._reads(expr)
        changing = (depth for depth, (var, _) in enumerate(loops, 1) if var in read or self._written[var] & read)
        return max(changing, default=0)


def _variables(indices: Sequence[Expr]) -> set[Var]:
    found: set[Var] = set()
    for index in indices:
        tvm_ffi.structural_walk(index, [(Var, found.add)])
    return found


def _calls(expr: Expr) -> bool:
    """Return True if an expression calls a function that compilers do not hoist."""
    calls: list[Call] = []
    tvm_ffi.structural_walk(
        expr, [(Call, lambda call: calls.append(call) if function_name(call) not in _PURE else None)]
    )
    return bool(calls)


def _divides(expr: Expr) -> bool:
    found: list[Expr] = []
    tvm_ffi.structural_walk(expr, [(Expr, lambda part: found.append(part) if isinstance(part, DIVISIONS) else None)])
    return bool(found)


def _sum(counts: Iterator[Counter[str]]) -> Counter[str]:
    return sum(counts, Counter())


_CALLS = {
    "sigmoid": ("exp", "arithmetic", "divide"),
    "rsqrt": ("sqrt", "divide"),
    "exp10": ("pow",),
    "isnan": ("compare",),
}


def kinds_of(expr: Expr, is_variable: Callable[[Var], bool]) -> Iterator[str]:
    """Yield the operations of an expression itself, without its operands.

    is_variable: True for a buffer whose elements need no load.
    """
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
        # Sums and products of counters and invariants are induction variables.
        is_product = isinstance(expr, tirx.Mul) and is_float(expr)
        yield f"{family(expr)} {'product' if is_product else 'arithmetic'}"


def _reads_memory(expr: Expr, is_variable: Callable[[Var], bool]) -> bool:
    """Return True if an expression loads from memory."""
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, [(TensorLoad, found.append)])
    return not all(is_variable(load.source) for load in found)


def _extreme(expr: tirx.Min | tirx.Max, is_variable: Callable[[Var], bool]) -> str:
    """Return `place` for a clamped index, `limit` for a float and a constant or running extreme, else `extreme`."""
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


MOST_POINTERS = 16
"""Loads of an iteration whose pointers fit the registers."""
_CALLED = SAME_NAME - {"fabs", "floor", "ceil", "trunc", "rint"}
"""Kinds of operations that call a function on processors with rounding instructions."""
_TESTED = ("float choice", "integer divide", "turn", "tested turn")


def turn_kind(inside: Counter[str]) -> str:
    """Return the kind of an iteration: hardware loops need a body without branches, calls and inner loops."""
    others = any(kind in _TESTED or kind.partition(" ")[2] in _CALLED for kind in inside)
    return "tested turn" if others else "turn"


def saved_by_vectors(inside: Counter[str], turns: int, outer_turns: int) -> dict[str, int]:
    """Return the operations that vectors save: a vector takes one for all lanes; the rest runs in a scalar loop.

    Few vectors are unrolled, and the pointers of many loads per iteration lie on the stack.
    """
    if any(kind.startswith(SAVED) for kind in inside):
        return {}
    vectors, rest = divmod(turns, LANES)
    shares = dict.fromkeys(("turn", "tested turn"), 1.0) if vectors <= UNROLLED_TURNS else {}
    share = 1 - (vectors + rest) / turns
    saved = {
        f"{SAVED}{kind}": round(count * shares.get(kind, share)) for kind, count in inside.items() if kind != "loop"
    }
    if inside["load"] > MOST_POINTERS * outer_turns * turns:
        saved["pointer"] = round(inside["load"] * vectors / turns)
    is_checked = not shares or inside["load"] >= outer_turns * turns  # run-time overlap check of input and output
    return saved | ({"remainder": outer_turns} if rest and is_checked else {})
