"""Schedule the loop nests of a merged PrimFunc before lowering: fewer full intermediates, sums in local variables.

No rewrite changes a value or the order in which an output element is summed.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import s_tir, tirx
from tvm.error import InternalError
from tvm.ir import Call, Constant, Op, TensorLoad
from tvm.s_tir.schedule import SBlockRV

from codegen_c.tir.intrinsics import CHEAP_CALLS

MAX_REPEATED_OPERATIONS = 24
SPATIAL, REDUCTION = 0, 2


def schedule_merged(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Inline cheap producers, fuse the consumer of a reduction into it, and keep its running value in a local variable.

    A step that TVM's scheduling rejects is skipped; a function that it rejects is returned unchanged.
    """
    try:
        return _scheduled(function)
    except (s_tir.ScheduleError, InternalError, ValueError):
        return function


def _scheduled(function: tirx.PrimFunc) -> tirx.PrimFunc:
    schedule = s_tir.Schedule(function, error_render_level="none")
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    parameters = set(function.params)
    remaining = [block for block in blocks if not _inline_producer(schedule, block, parameters)]
    for block in [block for block in remaining if schedule.get(block).init is not None]:
        _accumulate_locally(schedule, block)
    return schedule.mod["main"]


def _inline_producer(schedule: s_tir.Schedule, block: SBlockRV, parameters: set[tirx.Var]) -> bool:
    node = schedule.get(block)
    if not _is_elementwise(node) or node.body.buffer in parameters:
        return False
    consumers = [schedule.get(consumer) for consumer in schedule.get_consumers(block)]
    if not consumers or not (_is_cheap(node.body.value) or _is_read_once(node, consumers)):
        return False
    return _tried(schedule.compute_inline, block)


def _accumulate_locally(schedule: s_tir.Schedule, block: SBlockRV) -> None:
    """Rewrite to `for spatial: { acc = init; for reduction: acc += ...; out = f(acc); }`."""
    node = schedule.get(block)
    loops = schedule.get_loops(block)
    kinds = {iter_var.var: iter_var.iter_type for iter_var in node.iter_vars}
    if len(loops) != len(kinds):
        return
    order = [iter_var.iter_type for iter_var in node.iter_vars]
    first = order.index(REDUCTION) if REDUCTION in order else len(order)
    if first == len(order) or any(kind != REDUCTION for kind in order[first:]):
        return
    if isinstance(node.body, tirx.BufferStore):
        num_results = math.prod(int(iter_var.dom.extent) for iter_var in node.iter_vars[:first])
        write_back = schedule.cache_write(block, 0, "local")
        consumers = schedule.get_consumers(write_back)
        if len(consumers) == 1:  # TVM inlines one of several readers, too, and leaves the others without the tensor
            after = schedule.get(consumers[0])
            if _is_elementwise(after) and _num_iterations(after) == num_results:
                _tried(schedule.reverse_compute_inline, consumers[0])
        if first:
            _tried(lambda: schedule.reverse_compute_at(write_back, loops[first - 1]))
    _tried(lambda: schedule.decompose_reduction(block, loops[first]))


def _is_elementwise(block: s_tir.SBlock) -> bool:
    return (
        block.init is None
        and isinstance(block.body, tirx.BufferStore)
        and all(iter_var.iter_type == SPATIAL for iter_var in block.iter_vars)
    )


def _is_cheap(value: tirx.Expr) -> bool:
    """Return True for few operations without library calls and float divisions, which may be repeated at each use."""
    operations, costly = 0, False

    def visit(node: tirx.Expr) -> None:
        nonlocal operations, costly
        operations += not isinstance(node, tirx.Var | Constant)
        if isinstance(node, Call):
            costly |= not (isinstance(node.op, Op) and node.op.name.rpartition(".")[2] in CHEAP_CALLS)
        elif isinstance(node, tirx.Div):
            costly |= str(node.ty.dtype).startswith("float")

    tvm_ffi.structural_walk(value, [(tirx.Expr, visit)])
    return not costly and operations <= MAX_REPEATED_OPERATIONS


def _is_read_once(producer: s_tir.SBlock, consumers: list[s_tir.SBlock]) -> bool:
    """Return True if each element is read at most about once, so that inlining repeats no work."""
    if len(consumers) != 1 or _num_iterations(consumers[0]) > _num_iterations(producer):
        return False
    sites = 0

    def visit(load: TensorLoad) -> None:
        nonlocal sites
        sites += load.source.same_as(producer.body.buffer)

    tvm_ffi.structural_walk(consumers[0].body, [(TensorLoad, visit)])
    return sites == 1


def _num_iterations(block: s_tir.SBlock) -> int:
    return math.prod(int(iter_var.dom.extent) for iter_var in block.iter_vars)


def _tried(step, *arguments) -> bool:
    try:
        step(*arguments)
    except s_tir.ScheduleError:
        return False
    return True
