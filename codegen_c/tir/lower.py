"""TVM's own lowering of a merged PrimFunc: blocks to plain loops over flat buffers."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx


def lower_function(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Plain loops, flat buffers, 32-bit indices where they suffice, index arithmetic simplified."""
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
