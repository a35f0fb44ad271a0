"""Lower a merged PrimFunc by TVM to plain loops, and count its multiply-accumulates."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Expr, Range, TensorLoad, Var
from tvm.sym import Analyzer

from codegen_c.tir.ranges import reads_elements
from codegen_c.tir.shape_loops import cut_loops, fuse_loops, straighten_loops


def lower_function(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the plain loops that are printed as C."""
    straight = straighten_loops(fuse_loops(plain_loops(function)))
    cut = tirx.transform.StmtSimplify()(tvm.IRModule({"main": cut_loops(straight)}))["main"]
    return _without_dead_stores(cut)


def plain_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return plain loops as TVM leaves them: flat buffers, 32-bit indices where they suffice, simplified indices."""
    passes = [
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
    ]
    return tvm.transform.Sequential(passes)(tvm.IRModule({"main": shaped_loops(function)}))["main"]


def shaped_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return loops without TVM's blocks, over buffers that keep the shapes of their tensors."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    return tvm.transform.Sequential(passes)(tvm.IRModule({"main": function}))["main"]


def _without_dead_stores(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function without stores to buffers that are never read, such as the mask of dropout."""
    dead = _written_only(function.body)
    while dead:
        body = tvm_ffi.structural_map(
            function.body,
            (tirx.BufferStore, lambda store, dead=dead: tirx.Evaluate(0) if store.buffer in dead else store),
        )
        module = tvm.IRModule({"main": function.with_body(body)})
        function = tirx.transform.RemoveNoOp()(module)["main"]
        dead = _written_only(function.body)
    return function


def _written_only(body: tirx.Stmt) -> set[Var]:
    allocated: set[Var] = set()
    read: set[Var] = set()
    written: set[Var] = set()
    tvm_ffi.structural_walk(
        body,
        [
            (tirx.AllocBuffer, lambda alloc: allocated.add(alloc.buffer)),
            (tirx.DeclBuffer, lambda view: read.add(view.data.args[0])),  # a view of the buffer may read it
            (tirx.BufferStore, lambda store: written.add(store.buffer)),
            (TensorLoad, lambda load: read.add(load.source)),
        ],
    )
    return (allocated & written) - read


def macs_of_function(function: tirx.PrimFunc) -> int:
    """Return the multiply-accumulates of one run, before any scheduling."""
    return macs_of_loops(lower_function(function).body)


def macs_of_loops(statement: tirx.Stmt) -> int:
    """Return the multiply-accumulates of plain loops: each addition of a product of elements to a stored element.

    Of two branches the larger counts; bodies of `while` count once.
    """
    return _macs(statement, Analyzer())


def _macs(statement: tirx.Stmt, analyzer: Analyzer) -> int:
    if isinstance(statement, tirx.SeqStmt):
        return sum(_macs(part, analyzer) for part in statement.seq)
    if isinstance(statement, tirx.For):
        analyzer.bind(statement.loop_var, Range.from_min_extent(statement.min, statement.extent))
        each = _macs(statement.body, analyzer)
        return each * _turns(statement, analyzer) if each else 0
    if isinstance(statement, tirx.IfThenElse):
        other = _macs(statement.else_case, analyzer) if statement.else_case is not None else 0
        return max(_macs(statement.then_case, analyzer), other)
    if isinstance(statement, tirx.While | tirx.AttrStmt):
        return _macs(statement.body, analyzer)
    return int(isinstance(statement, tirx.BufferStore) and _adds_product(statement))


def _turns(loop: tirx.For, analyzer: Analyzer) -> int:
    """Return the iterations of a loop, or their maximum if they depend on enclosing loops."""
    step = int(loop.step) if loop.step is not None else 1
    return max(0, math.ceil(analyzer.const_int_bound(loop.extent).max_value / step))


def _adds_product(store: tirx.BufferStore) -> bool:
    """Return True for `x[i] = x[i] + ... a * b ...`, where a factor is at least an element."""
    total = store.value
    if not isinstance(total, tirx.Add):
        return False
    sides = [(total.a, total.b), (total.b, total.a)]
    return any(_is_stored(kept, store) and _has_product(added) for kept, added in sides)


def _is_stored(value: Expr, store: tirx.BufferStore) -> bool:
    return (
        isinstance(value, TensorLoad)
        and value.source.same_as(store.buffer)
        and tvm_ffi.structural_equal(value.indices, store.indices)
    )


def _has_product(value: Expr) -> bool:
    found: list[tirx.Mul] = []
    tvm_ffi.structural_walk(value, [(tirx.Mul, found.append)])
    return any(map(reads_elements, found))
