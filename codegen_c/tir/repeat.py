"""A step, such as one of a recurrent network, as loops that run it for each element of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import Expr, TensorLoad, Var

from codegen_c.tir.legalize import legalize_composite
from codegen_c.tir.merge import Merged, merge_stages
from codegen_c.tir.schedule import schedule_merged
from tvm_ext.core.decisions.composites import RepeatedStep, Symbol


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeated:
    """A step in a loop over time.

    function: its parameters are the states before, the sequences [count, ...], what is the same in each step, and
    `constants`; then the states after, and the stacked results [count, ...]. It carries the `RepeatedStep`.
    """

    function: tirx.PrimFunc
    constants: tuple[np.ndarray, ...]


def step_of(repeated: RepeatedStep) -> relax.Function:
    """The step as a function."""
    return tvm.ir.load_json(repeated.step)


def repeat_step(step: relax.Function, repeated: RepeatedStep) -> Repeated:
    """A step many times in series, as one function whose size does not depend on how often.

    repeated: as the loops carry it, the step left out. Raises CannotLowerError where the step has no loops.
    """
    count, num_states, num_sequences = repeated.count, repeated.num_states, repeated.num_sequences
    merged = merge_stages(legalize_composite(step))
    parameters = list(merged.function.params)
    inputs, outputs = parameters[: merged.num_inputs], parameters[merged.num_inputs :][: merged.num_outputs]
    constants = parameters[merged.num_inputs + merged.num_outputs :]
    states, elements, same = (
        inputs[:num_states], inputs[num_states:][:num_sequences], inputs[num_states + num_sequences :],
    )  # fmt: skip
    turn = Var("t", tvm.ir.PrimType("int32"))
    time = tirx.const(count - 1, "int32") - turn if repeated.is_backward else turn
    sequences = {element: _sequence(element, count) for element in (*elements, *outputs[num_states:])}
    before, after, new = ([_like(state, part) for state in states] for part in ("before", "after", "new"))
    renamed = dict(zip((*states, *outputs[:num_states]), (*after, *new), strict=True))
    once = _in_time(_sums_side_by_side(_plain_loops(merged).body), renamed, sequences, time)
    advance = [_copy(source, target) for source, target in zip(new, after, strict=True)]
    loop = tirx.For(turn, 0, count, tirx.ForKind.SERIAL, tirx.SeqStmt([once, *advance]))
    start = [_copy(source, target) for source, target in zip(before, after, strict=True)]
    body = tirx.SeqStmt([*map(tirx.AllocBuffer, new), *start, loop])
    given = [*before, *(sequences[element] for element in elements), *same, *constants]
    made = [*after, *(sequences[element] for element in outputs[num_states:])]
    function = tirx.PrimFunc([*given, *made], body).with_attr("s_tir", True)
    named = Symbol(name="repeated").write(function)
    carried = replace(repeated, step=tvm.ir.save_json(step))
    return Repeated(function=carried.write(named), constants=merged.constants)


def _plain_loops(merged: Merged) -> tirx.PrimFunc:
    """The step as loops over tensors of their own shapes."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    module = tvm.IRModule({"main": schedule_merged(merged.function)})
    return tvm.transform.Sequential(passes)(module)["main"]


def _in_time(body: tirx.Stmt, renamed: Mapping[Var, Var], sequences: Mapping[Var, Var], time: Expr) -> tirx.Stmt:
    """The body with states under other names, and elements of sequences at a time."""

    def load(expr: TensorLoad) -> Expr:
        if expr.source in sequences:
            return tirx.BufferLoad(sequences[expr.source], [time, *expr.indices])
        return tirx.BufferLoad(renamed[expr.source], expr.indices) if expr.source in renamed else expr

    def store(statement: tirx.BufferStore) -> tirx.Stmt:
        if statement.buffer in sequences:
            return tirx.BufferStore(sequences[statement.buffer], statement.value, [time, *statement.indices])
        if statement.buffer in renamed:
            return tirx.BufferStore(renamed[statement.buffer], statement.value, statement.indices)
        return statement

    return tvm_ffi.structural_map(body, [(TensorLoad, load), (tirx.BufferStore, store)])


def _copy(source: Var, target: Var) -> tirx.Stmt:
    """All elements of a tensor, one by one."""
    extents = [int(extent) for extent in source.ty.shape]
    indices = [Var(f"i{axis}", tvm.ir.PrimType("int32")) for axis in range(len(extents))]
    body: tirx.Stmt = tirx.BufferStore(target, tirx.BufferLoad(source, indices), indices)
    for index, extent in reversed(list(zip(indices, extents, strict=True))):
        body = tirx.For(index, 0, extent, tirx.ForKind.SERIAL, body)
    return body


def _like(buffer: Var, part: str) -> Var:
    return tirx.decl_buffer(_shape(buffer), str(buffer.ty.dtype), f"{buffer.name}_{part}")


def _sequence(element: Var, count: int) -> Var:
    return tirx.decl_buffer((count, *_shape(element)), str(element.ty.dtype), f"{element.name}s")


def _shape(buffer: Var) -> Sequence[int]:
    return tuple(int(extent) for extent in buffer.ty.shape)


SIDE_BY_SIDE = 4
"""Sums that are added up at once, so that what they share is loaded once."""


def _sums_side_by_side(body: tirx.Stmt) -> tirx.Stmt:
    """Loops over sums with several sums in each turn. Each is added up in the order that it had."""
    return tvm_ffi.structural_map(body, [(tirx.For, _several_sums)])


def _several_sums(loop: tirx.For) -> tirx.Stmt:
    parts = list(loop.body.seq) if isinstance(loop.body, tirx.SeqStmt) else []
    kinds = [type(part) for part in parts]
    if kinds != [tirx.AllocBuffer, tirx.BufferStore, tirx.For, tirx.BufferStore]:
        return loop
    local, inner = parts[0].buffer, parts[2]
    is_sum = isinstance(inner.body, tirx.BufferStore) and inner.body.buffer.same_as(local)
    if not is_sum or int(loop.min) or int(loop.extent) % SIDE_BY_SIDE or loop.step is not None:
        return loop
    turn = Var(loop.loop_var.name, loop.loop_var.ty)
    copies = [_sum_of(parts, loop.loop_var, turn * SIDE_BY_SIDE + number, number) for number in range(SIDE_BY_SIDE)]
    made, begun, added, ended = (list(statements) for statements in zip(*copies, strict=True))
    together = tirx.For(inner.loop_var, inner.min, inner.extent, inner.kind, tirx.SeqStmt(added))
    started = [statement for pair in zip(made, begun, strict=True) for statement in pair]
    several = tirx.SeqStmt([*started, together, *ended])
    return tirx.For(turn, 0, int(loop.extent) // SIDE_BY_SIDE, loop.kind, several)


def _sum_of(parts: Sequence[tirx.Stmt], counter: Var, place: Expr, number: int) -> tuple[tirx.Stmt, ...]:
    """One sum of several: its variable, its begin, what a turn of the inner loop adds, what becomes of it."""
    allocated, begun, inner, ended = parts
    local = allocated.buffer
    own = tirx.decl_buffer(_shape(local), str(local.ty.dtype), f"{local.name}{number}", scope="local")

    def var(expr: Var) -> Expr:
        return place if expr.same_as(counter) else own if expr.same_as(local) else expr

    statements = (tvm_ffi.structural_map(part, [(Var, var)]) for part in (begun, inner.body, ended))
    return (tirx.AllocBuffer(own), *statements)
