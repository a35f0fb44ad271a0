"""Extremes of floats begin with their first element; TVM's begin with a finite float, which infinities lie beyond."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var

_REDUCTION = 2


def with_true_starts(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with `true_start` in all blocks of its PrimFuncs."""
    result = mod.clone()
    for var, function in mod.functions_items():
        if isinstance(function, tirx.PrimFunc):
            body = tvm_ffi.structural_map(function.body, [(s_tir.SBlock, _started)])
            result.update_func(var, function.with_body(body))
    return result


def true_start(block: s_tir.SBlock) -> tirx.Stmt | None:
    """The first element for extremes of floats: one that is NaN stays, later ones are passed over, as onnxruntime does.

    TVM starts from the least finite float, which minus infinity is below.
    """
    init, body = block.init, block.body
    if not isinstance(init, tirx.BufferStore) or not isinstance(init.value, tirx.FloatImm):
        return init
    if not isinstance(body, tirx.BufferStore) or not isinstance(body.value, tirx.Max | tirx.Min):
        return init
    worst = tirx.min_value if isinstance(body.value, tirx.Max) else tirx.max_value
    if float(init.value.value) != float(worst(str(init.value.ty.dtype)).value) and math.isfinite(init.value.value):
        return init
    first = {axis.var: axis.dom.min for axis in block.iter_vars if axis.iter_type == _REDUCTION}
    element = tvm_ffi.structural_map(body.value.b, [(Var, lambda var: first.get(var, var))])
    return tirx.BufferStore(init.buffer, element, init.indices)


def _started(block: s_tir.SBlock) -> s_tir.SBlock:
    return s_tir.SBlock(
        block.iter_vars, block.reads, block.writes, block.name_hint, block.body, true_start(block),
        block.alloc_buffers, block.match_buffers, block.annotations,
    )  # fmt: skip
