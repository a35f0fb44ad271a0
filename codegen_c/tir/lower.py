"""TVM's own lowering of a merged PrimFunc: blocks to plain loops over flat buffers."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, Var

from codegen_c.tir.cut_loops import cut_loops
from codegen_c.tir.fuse_loops import fuse_loops
from codegen_c.tir.straighten_loops import straighten_loops


def lower_function(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Plain loops as C is printed of them."""
    straight = straighten_loops(fuse_loops(plain_loops(function)))
    cut = tirx.transform.StmtSimplify()(tvm.IRModule({"main": cut_loops(straight)}))["main"]
    return _without_dead_stores(cut)


def plain_loops(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Plain loops as TVM leaves them: flat buffers, 32-bit indices where they suffice, index arithmetic simplified."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        tirx.transform.StmtSimplify(),
        tirx.transform.RemoveNoOp(),
    ]
    return tvm.transform.Sequential(passes)(tvm.IRModule({"main": function}))["main"]


def _without_dead_stores(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function without stores that are never read, such as of a second result nobody asked for (dropout's mask)."""
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
            (tirx.DeclBuffer, lambda view: read.add(view.data.args[0])),  # its view may read it
            (tirx.BufferStore, lambda store: written.add(store.buffer)),
            (TensorLoad, lambda load: read.add(load.source)),
        ],
    )
    return (allocated & written) - read
