"""Loops that compilers vectorize for processors with vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.kernels.work import LANES
from codegen_c.tir.intrinsics import DIVISIONS, FREE, RELATIONS, family, function_name, is_float
from codegen_c.tir.loops import operands

UNROLLED_TURNS = 8
"""Iterations up to which a C compiler unrolls a loop."""
WRITTEN_OUT = 32
"""Iterations of nested loops up to which a C compiler unrolls all of them."""
_KINDS = (tirx.BufferStore, tirx.SeqStmt, tirx.AllocBuffer)
_CALLS = frozenset(("fabs", "shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"))
_INTERLEAVED = (2, 4)
"""Numbers of interleaved vectors that one instruction separates or interleaves."""


def is_vector(
    loop: tirx.For, turns: int, owners: Mapping[Var, Var], analyzer: Analyzer, variables: Set[Var] = frozenset()
) -> bool:
    """Return True if a compiler vectorizes a loop: it stores neighbours, computed from neighbours or invariants.

    Choices, functions without vector form, and sums of floats into one element prevent this; unrolled inner loops make
    such sums independent. owners: buffers behind views. variables: buffers of one element.
    """
    inside = _Inside.of(loop, owners)
    if turns < LANES or not inside.is_plain or turns_written_out(loop.body) is None:
        return False
    places = [(buffer, indices) for buffer, indices in inside.stores if buffer not in variables]
    read = [(buffer, indices) for buffer, indices in inside.loads if buffer not in variables]
    steps = [inside.step(loop.loop_var, indices, analyzer) for _, indices in places]
    if not places or any(step != 1 for step in steps):
        return False
    written = dict(places)
    for buffer, indices in read:  # an iteration may read its own stored element, or one that no vector contains
        own = written.get(buffer)
        if own is not None and not _is_apart(own, indices, turns, analyzer):
            return False
    return all(inside.step(loop.loop_var, indices, analyzer) in (0, 1) for _, indices in read)


def turns_written_out(statement: tirx.Stmt) -> int | None:
    """Return the iterations of the loops in a statement that compilers unroll; None if one is not unrolled."""
    loops: list[tirx.For] = []

    def turns(part: tirx.Stmt) -> int:
        if isinstance(part, tirx.SeqStmt):
            return sum(turns(one) for one in part.seq)
        if isinstance(part, tirx.For):
            loops.append(part)
            return int(part.extent) * max(1, turns(part.body)) if isinstance(part.extent, tirx.IntImm) else WRITTEN_OUT
        if isinstance(part, tirx.IfThenElse):
            return sum(turns(side) for side in (part.then_case, part.else_case) if side is not None)
        return turns(part.body) if isinstance(part, tirx.AttrStmt | tirx.While) else 0

    times = turns(statement)
    is_short = all(isinstance(loop.extent, tirx.IntImm) and int(loop.extent) <= UNROLLED_TURNS for loop in loops)
    return times if is_short and times <= WRITTEN_OUT else None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Inside:
    """Statements of a loop: stores and loads, counters of inner loops and their iterations.

    is_plain: True if every operation has a vector form.
    """

    stores: list[tuple[Var, Sequence[Expr]]]
    loads: list[tuple[Var, Sequence[Expr]]]
    counters: dict[Var, int]
    is_plain: bool

    @classmethod
    def of(cls, loop: tirx.For, owners: Mapping[Var, Var]) -> _Inside:
        statements: list[tirx.Stmt] = []
        expressions: list[Expr] = []
        tvm_ffi.structural_walk(loop.body, [(tirx.Stmt, statements.append), (Expr, expressions.append)])
        stores = [part for part in statements if isinstance(part, tirx.BufferStore)]
        loops = [part for part in statements if isinstance(part, tirx.For)]
        changing = {loop.loop_var, *(store.buffer for store in stores)}
        is_plain = all(isinstance(part, (*_KINDS, tirx.For)) for part in statements)
        return cls(
            stores=[(owners.get(store.buffer, store.buffer), store.indices) for store in stores],
            loads=[
                (owners.get(expr.source, expr.source), expr.indices)
                for expr in expressions
                if isinstance(expr, TensorLoad)
            ],
            counters={part.loop_var: int(part.extent) for part in loops if isinstance(part.extent, tirx.IntImm)},
            is_plain=is_plain and not any(_has_no_vector(expr, changing) for expr in expressions),
        )

    def step(self, counter: Var, indices: Sequence[Expr], analyzer: Analyzer) -> int | None:
        """Return the elements from one iteration's index to the next one's, or None if they differ.

        The step is 1 if interleaved neighbours are separated into vectors.
        """
        step = _step(indices, counter, analyzer)
        if step in _INTERLEAVED:
            within = [_step(indices, inner, analyzer) for inner, turns in self.counters.items() if turns == step]
            return 1 if 1 in within else step
        return step


def _is_apart(stored: Sequence[Expr], read: Sequence[Expr], turns: int, analyzer: Analyzer) -> bool:
    """Return True if no other iteration stores an element that this one reads."""
    if tvm_ffi.structural_equal(stored, read):
        return True
    distance = analyzer.simplify(stored[0] - read[0])
    return isinstance(distance, tirx.IntImm) and abs(int(distance)) >= turns


def _step(indices: Sequence[Expr], counter: Var, analyzer: Analyzer) -> int | None:
    """Return the elements from one iteration's index to the next one's; None if they differ."""
    if len(indices) != 1:
        return None
    place = indices[0]
    following = counter + tirx.const(1, counter.ty.dtype)
    after = tvm_ffi.structural_map(place, [(Var, lambda var: following if var.same_as(counter) else var)])
    step = analyzer.simplify(after - place)
    return int(step) if isinstance(step, tirx.IntImm) else None


def _has_no_vector(expr: Expr, changing: Set[Var]) -> bool:
    """Return True for an operation without vector form: of doubles, quotients, comparisons of floats, functions.

    Invariant operations do not count, because they are computed before the loop.
    """
    always, either = operands(expr)
    if not _variables(always[0] if either else expr) & changing:
        return False
    if isinstance(expr, Call):
        return function_name(expr) not in (*_CALLS, *FREE, "buffer_data")
    if isinstance(expr, tirx.Cast):
        return family(expr) != family(expr.value)
    if isinstance(expr, tirx.Min | tirx.Max | tirx.Select):
        return is_float(expr)
    if isinstance(expr, tirx.Div) and isinstance(expr.b, tirx.FloatImm):
        return abs(math.frexp(float(expr.b.value))[0]) != 0.5  # by a power of two: a product
    return isinstance(expr, (*DIVISIONS, *RELATIONS)) or family(expr) in ("double", "long")


def _variables(expr: Expr) -> set[Var]:
    """Return the counters and buffers that an expression reads."""
    found: set[Var] = set()
    tvm_ffi.structural_walk(expr, [(Var, found.add), (TensorLoad, lambda load: found.add(load.source))])
    return found
