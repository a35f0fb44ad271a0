"""Loops with few others inside, cut where a comparison of their counter with a constant turns out otherwise.

    for i in 0..60: y[i] = (30 <= i) ? b[i - 30] : a[i]
      ->  for i in 0..30: y[i] = a[i]; for i in 0..30: y[i + 30] = b[i]
No element is computed otherwise, or in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from codegen_c.tir.loops import operands_of

MOST_PARTS = 3
"""Loops that one may become: a result between two edges has three."""
MOST_INSIDE = 5
"""Loops inside of one that is cut where code may grow: a padded row has three, which are written thrice then."""


def cut_loops(function: tirx.PrimFunc, *, most_inside: int = 0) -> tirx.PrimFunc:
    """The function with such loops cut; comparisons stand there still, and simplify to constants.

    most_inside: loops that may be in one.
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
    """Values of the counter from which on some comparison of it is another than before."""
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(loop.body, [(tirx.BufferStore, stores.append)])
    found: set[int] = set()
    for node in (node for store in stores for node in _comparisons(store.value)):
        for counter, bound, is_left in ((node.a, node.b, True), (node.b, node.a, False)):
            if isinstance(counter, Var) and counter.same_as(loop.loop_var) and isinstance(bound, tirx.IntImm):
                # i < n and n <= i turn at n, i <= n and n < i behind it.
                found.add(int(bound) + (isinstance(node, tirx.LT) != is_left))
    return found


def _comparisons(expr: Expr) -> Iterator[tirx.LT | tirx.LE]:
    """Comparisons that choose a result; those of indices become tables (tabulate.py)."""
    if isinstance(expr, tirx.LT | tirx.LE):
        yield expr
    elif not isinstance(expr, TensorLoad):
        for operand in operands_of(expr):
            yield from _comparisons(operand)


def _part(loop: tirx.For, low: int, high: int) -> tirx.For:
    """Its turns from low to high, counted from zero."""
    counter, dtype = Var(loop.loop_var.name, loop.loop_var.ty), str(loop.loop_var.ty.dtype)
    place = counter + tirx.IntImm(dtype, low) if low else counter
    body = tvm_ffi.structural_map(loop.body, [(Var, lambda var: place if var.same_as(loop.loop_var) else var)])
    return tirx.For(counter, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, high - low), loop.kind, body)
