"""Loops that compilers make vectors of, where a processor has any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, Expr, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.kernels.work import LANES
from codegen_c.tir.families import DIVISIONS, FREE, RELATIONS, family, function_name, is_float

UNROLLED_TURNS = 8
"""A C compiler writes loops of as few turns as statements behind each other."""
_KINDS = (tirx.BufferStore, tirx.SeqStmt, tirx.AllocBuffer)
_CALLS = frozenset(("fabs", "shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"))


def is_vector(
    loop: tirx.For, turns: int, owners: Mapping[Var, Var], analyzer: Analyzer, variables: Set[Var] = frozenset()
) -> bool:
    """True where a compiler makes vectors of a loop: stores of neighbours, of what is loaded so or does not change.

    Choices, functions that no vector has, and sums of floats into one place are none, but in a few turns of a loop
    inside they are as many sums. owners: buffers behind views. variables: buffers of one element.
    """
    stores: list[tirx.Stmt] = []
    others: list[Expr] = []
    loads: list[TensorLoad] = []
    changing = {loop.loop_var}
    tvm_ffi.structural_walk(loop.body, [(tirx.For, lambda inner: changing.add(inner.loop_var)),
                                        (tirx.BufferStore, lambda store: changing.add(store.buffer))])  # fmt: skip

    def changes(expr: Expr) -> bool:
        return bool(_variables(expr) & changing)

    tvm_ffi.structural_walk(
        loop.body,
        [
            (tirx.Stmt, stores.append),
            (TensorLoad, loads.append),
            (Expr, lambda expr: others.append(expr) if _has_no_vector(expr) and changes(expr) else None),
        ],
    )
    loads = [load for load in loads if owners.get(load.source, load.source) not in variables]
    kinds_known = all(isinstance(statement, _KINDS) or _is_short(statement) for statement in stores)
    places = [
        (store.buffer, store.indices)
        for store in stores
        if isinstance(store, tirx.BufferStore) and owners.get(store.buffer, store.buffer) not in variables
    ]
    loops_inside = sum(isinstance(statement, tirx.For) for statement in stores)
    if turns < LANES or not kinds_known or others or not places or loops_inside > 1:
        return False
    written = {owners.get(buffer, buffer): indices for buffer, indices in places}
    for load in loads:  # of what is stored a turn reads its own element alone
        own = written.get(owners.get(load.source, load.source))
        if own is not None and not tvm_ffi.structural_equal(own, load.indices):
            return False
    steps = [_step(indices, loop.loop_var, analyzer) for _, indices in places]
    read = [_step(load.indices, loop.loop_var, analyzer) for load in loads]
    return all(step == 1 for step in steps) and all(step in (0, 1) for step in read)


def _variables(expr: Expr) -> set[Var]:
    """Counters that an expression reads, and buffers."""
    found: set[Var] = set()
    tvm_ffi.structural_walk(expr, [(Var, found.add), (TensorLoad, lambda load: found.add(load.source))])
    return found


def _is_short(statement: tirx.Stmt) -> bool:
    """True for a loop that compilers write out."""
    return (
        isinstance(statement, tirx.For)
        and isinstance(statement.extent, tirx.IntImm)
        and int(statement.extent) <= UNROLLED_TURNS
    )


def _step(indices: Sequence[Expr], counter: Var, analyzer: Analyzer) -> int | None:
    """Elements from one turn's place to the next one's; None where they differ."""
    if len(indices) != 1:
        return None
    place = indices[0]
    following = counter + tirx.const(1, counter.ty.dtype)
    after = tvm_ffi.structural_map(place, [(Var, lambda var: following if var.same_as(counter) else var)])
    step = analyzer.simplify(after - place)
    return int(step) if isinstance(step, tirx.IntImm) else None


def _has_no_vector(expr: Expr) -> bool:
    """True for an operation that vectors do not have: of doubles, quotients, comparisons of floats, functions."""
    if isinstance(expr, Call):
        return function_name(expr) not in (*_CALLS, *FREE, "buffer_data")
    if isinstance(expr, tirx.Cast):
        return family(expr) != family(expr.value)
    if isinstance(expr, tirx.Min | tirx.Max | tirx.Select):
        return is_float(expr)
    return isinstance(expr, (*DIVISIONS, *RELATIONS)) or family(expr) in ("double", "long")
