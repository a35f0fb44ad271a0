"""Run a step, such as a cell of a recurrent network, in a loop over the elements of a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import Expr, TensorLoad, Var

from codegen_c.tir.interleave_sums import interleave_sums
from codegen_c.tir.legalize import legalize_composite
from codegen_c.tir.lower import shaped_loops
from codegen_c.tir.merge import merge_stages
from codegen_c.tir.schedule import schedule_merged
from tvm_ext.core.decisions.composites import RepeatedStep


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeated:
    """A function that runs a step in a loop over time.

    function: takes the initial states, the sequences [count, ...], the step's other parameters and `constants`, and
    writes the final states and the stacked results [count, ...].
    """

    function: tirx.PrimFunc
    constants: tuple[np.ndarray, ...]


def step_of(repeated: RepeatedStep) -> relax.Function:
    """Return the step that a loop carries."""
    return tvm.ir.load_json(repeated.step)


def repeat_step(step: relax.Function, repeated: RepeatedStep, module: tvm.IRModule | None = None) -> Repeated:
    """Return one function that runs a step `repeated.count` times; its size does not depend on the count.

    repeated: describes the parameters and results of `step`; its own `step` is filled in. module: contains the
    PrimFuncs that the step calls; such a step cannot be carried as text, and the function then has no `RepeatedStep`.
    Raises CannotLowerError if the step cannot be lowered to loops.
    """
    count, num_states, num_sequences = repeated.count, repeated.num_states, repeated.num_sequences
    merged = merge_stages(legalize_composite(step, module))
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
    once = _in_time(interleave_sums(shaped_loops(schedule_merged(merged.function)).body), renamed, sequences, time)
    advance = [_copy(source, target) for source, target in zip(new, after, strict=True)]
    loop = tirx.For(turn, 0, count, tirx.ForKind.SERIAL, tirx.SeqStmt([once, *advance]))
    start = [_copy(source, target) for source, target in zip(before, after, strict=True)]
    body = tirx.SeqStmt([*map(tirx.AllocBuffer, new), *start, loop])
    given = [*before, *(sequences[element] for element in elements), *same, *constants]
    made = [*after, *(sequences[element] for element in outputs[num_states:])]
    function = tirx.PrimFunc([*given, *made], body).with_attr("s_tir", True)
    if module is None:
        function = replace(repeated, step=tvm.ir.save_json(step)).write(function)
    return Repeated(function=function, constants=merged.constants)


def with_count(function: tirx.PrimFunc, stacked: Sequence[int], count: int) -> tirx.PrimFunc:
    """Return a loop that runs the same step for another number of elements, from the first to the last.

    function: runs a step in a loop over time, as `repeat_step` writes it. stacked: positions of the parameters that
    have an element for each step. The attributes stay, except for the number of steps.
    """
    longer = [function.params[place] for place in stacked]
    sequences = {var: tirx.decl_buffer((count, *_shape(var)[1:]), str(var.ty.dtype), var.name) for var in longer}
    times: set[Var] = set()

    def load(expr: TensorLoad) -> Expr:
        if expr.source not in sequences:
            return expr
        times.add(expr.indices[0])
        return tirx.BufferLoad(sequences[expr.source], expr.indices)

    def store(statement: tirx.BufferStore) -> tirx.Stmt:
        if statement.buffer not in sequences:
            return statement
        return tirx.BufferStore(sequences[statement.buffer], statement.value, statement.indices)

    def loop(statement: tirx.For) -> tirx.Stmt:
        if statement.loop_var not in times:
            return statement
        return tirx.For(statement.loop_var, 0, count, statement.kind, statement.body)

    body = tvm_ffi.structural_map(function.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    body = tvm_ffi.structural_map(body, [(tirx.For, loop)])
    params = [sequences.get(param, param) for param in function.params]
    shorter = tirx.PrimFunc(params, body, function.ret_type, function.attrs)
    repeated = RepeatedStep.read(function)
    return replace(repeated, count=count).write(shorter) if repeated.count else shorter


def _in_time(body: tirx.Stmt, renamed: Mapping[Var, Var], sequences: Mapping[Var, Var], time: Expr) -> tirx.Stmt:
    """Return the body of one step: it reads and writes states under new names, and sequences at one time."""

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
    """Return loops that copy a tensor."""
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
