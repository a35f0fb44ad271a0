"""Compute several sums in one loop, so that an operand that they share is loaded once.

Rewrite:
    for i in 32: { s = 0; for k in 10: s += x[k] * w[i, k]; y[i] = s }
      ->  for i in 8: { s0 = 0; ... s3 = 0; for k in 10: { s0 += x[k] * w[4 * i, k]; ... }; y[4 * i] = s0; ... }
    Each sum still adds its terms in the same order, so no bit of a result changes.
Leaves alone: numbers of sums that four does not divide, loops whose bounds depend on the outer loop, and sums that read
    the buffer that the results are written to.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

AT_ONCE = 4
"""Accumulators of one loop. With the shared operand and a weight, they stay in the registers of every FPU."""


def interleave_sums(body: tirx.Stmt) -> tirx.Stmt:
    """Rewrite every loop over sums in loops whose buffers are not flat yet."""
    return tvm_ffi.structural_map(body, [(tirx.For, _interleaved)])


def _interleaved(loop: tirx.For) -> tirx.Stmt:
    parts = list(loop.body.seq) if isinstance(loop.body, tirx.SeqStmt) else []
    if not _is_sum(parts) or not _is_constant(loop) or int(loop.min) or int(loop.extent) % AT_ONCE:
        return loop
    inner, counter = parts[2], Var(loop.loop_var.name, loop.loop_var.ty)
    copies = [_accumulator(parts, loop.loop_var, counter * AT_ONCE + lane, lane) for lane in range(AT_ONCE)]
    starts = [statement for allocation, start, _, _ in copies for statement in (allocation, start)]
    terms, stores = [term for _, _, term, _ in copies], [store for *_, store in copies]
    together = tirx.For(inner.loop_var, inner.min, inner.extent, inner.kind, tirx.SeqStmt(terms))
    return tirx.For(counter, 0, int(loop.extent) // AT_ONCE, loop.kind, tirx.SeqStmt([*starts, together, *stores]))


def _is_sum(parts: Sequence[tirx.Stmt]) -> bool:
    """Return True if the statements set an accumulator, add terms to it in a loop, and store it in another buffer."""
    if [type(part) for part in parts] != [tirx.AllocBuffer, tirx.BufferStore, tirx.For, tirx.BufferStore]:
        return False
    allocation, start, inner, store = parts
    adds = isinstance(inner.body, tirx.BufferStore) and inner.body.buffer.same_as(allocation.buffer)
    read: set[Var] = set()
    for part in (start, inner):
        tvm_ffi.structural_walk(part, [(TensorLoad, lambda load: read.add(load.source))])
    return adds and _is_constant(inner) and start.buffer.same_as(allocation.buffer) and store.buffer not in read


def _is_constant(loop: tirx.For) -> bool:
    """Return True if a loop has constant bounds and a step of one."""
    return loop.step is None and isinstance(loop.min, tirx.IntImm) and isinstance(loop.extent, tirx.IntImm)


def _accumulator(
    parts: Sequence[tirx.Stmt], counter: Var, index: Expr, lane: int
) -> tuple[tirx.Stmt, tirx.Stmt, tirx.Stmt, tirx.Stmt]:
    """Return the statements of one sum: allocation, start, term of the inner loop, and store of the result.

    index: the element that the sum belongs to, in place of `counter`.
    """
    allocation, start, inner, store = parts
    local = allocation.buffer
    shape, dtype = tuple(int(extent) for extent in local.ty.shape), str(local.ty.dtype)
    own = tirx.decl_buffer(shape, dtype, f"{local.name}{lane}", scope="local")

    def var(expr: Var) -> Expr:
        return index if expr.same_as(counter) else own if expr.same_as(local) else expr

    start, term, store = (tvm_ffi.structural_map(part, [(Var, var)]) for part in (start, inner.body, store))
    return tirx.AllocBuffer(own), start, term, store
