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
from codegen_c.tir.legalize import alone, legalize_composite
from codegen_c.tir.lower import shaped_loops
from codegen_c.tir.merge import Merged, merge_stages
from codegen_c.tir.schedule import schedule_merged
from tvm_ext.core.decisions.composites import RepeatedStep


@dataclass(frozen=True, kw_only=True, eq=False)
class Repeated:
    """A function that runs a step in a loop over time.

    function: takes the initial states, the sequences [count, ...], the step's other parameters and `constants`, and
    writes the final states and the stacked results [count, ...]. If data end the loop, the function takes a bool ahead
    of the states, which is False if no step runs, and writes an int32, the number of steps, ahead of the final states.
    """

    function: tirx.PrimFunc
    constants: tuple[np.ndarray, ...]


def step_of(repeated: RepeatedStep) -> tvm.IRModule:
    """Return the step that a loop carries: a module with `main` and the PrimFuncs that `main` calls."""
    return tvm.ir.load_json(repeated.step)


def repeat_step(step: relax.Function, repeated: RepeatedStep, module: tvm.IRModule | None = None) -> Repeated:
    """Return one function that runs a step `repeated.count` times; its size does not depend on the count.

    repeated: describes the parameters and results of `step`; its own `step` is filled in. module: contains the
    PrimFuncs that the step calls. Raises CannotLowerError if the step cannot be lowered to loops.
    """
    merged = merge_stages(legalize_composite(step, module))
    function = _in_loop(merged, repeated)
    carried = replace(repeated, step=tvm.ir.save_json(alone(step, module))).write(function)
    return Repeated(function=carried, constants=merged.constants)


def _in_loop(merged: Merged, repeated: RepeatedStep) -> tirx.PrimFunc:
    """Return the loop over a step.

        after = before;  for t: { step(after, x[t]) -> (new, y[t]);  after = new; }

    If data end the loop, the rest of an iteration is skipped from then on, and printing ends the loop there:

        for t: { if (going) { step(after) -> (going, new);  passes = t + 1;  after = new; } }
    """
    count, num_states, num_sequences = repeated.count, repeated.num_states, repeated.num_sequences
    parameters = list(merged.function.params)
    inputs, outputs = parameters[: merged.num_inputs], parameters[merged.num_inputs :][: merged.num_outputs]
    indices, inputs = inputs[: repeated.has_index], inputs[repeated.has_index :]
    constants = parameters[merged.num_inputs + merged.num_outputs :]
    conditions, results = outputs[: repeated.is_open], outputs[repeated.is_open :]
    states, elements, same = (
        inputs[:num_states], inputs[num_states:][:num_sequences], inputs[num_states + num_sequences :],
    )  # fmt: skip
    turn = Var("t", tvm.ir.PrimType("int32"))
    time = tirx.const(count - 1, "int32") - turn if repeated.is_backward else turn
    sequences = {element: _sequence(element, count) for element in (*elements, *results[num_states:])}
    before, after, new = ([_like(state, part) for state in states] for part in ("before", "after", "new"))
    given, going = ([tirx.decl_buffer((), "bool", name) for _ in conditions] for name in ("given", "going"))
    passes = [tirx.decl_buffer((), "int32", "passes") for _ in conditions]
    renamed = dict(zip((*states, *results[:num_states], *conditions), (*after, *new, *going), strict=True))
    once = _in_time(
        interleave_sums(shaped_loops(schedule_merged(merged.function)).body), renamed, sequences, time,
        dict.fromkeys(indices, tirx.Cast("int64", turn)),
    )  # fmt: skip
    counted = [tirx.BufferStore(number, turn + 1, []) for number in passes]
    advance = [_copy(source, target) for source, target in zip(new, after, strict=True)]
    turned: tirx.Stmt = tirx.SeqStmt([once, *counted, *advance])
    for condition in going:
        turned = tirx.IfThenElse(tirx.BufferLoad(condition, []), turned, None)
    loop = tirx.For(turn, 0, count, tirx.ForKind.SERIAL, turned)
    start = [_copy(source, target) for source, target in zip((*before, *given), (*after, *going), strict=True)]
    start += [tirx.BufferStore(number, tirx.const(0, "int32"), []) for number in passes]
    body = tirx.SeqStmt([*map(tirx.AllocBuffer, (*new, *going)), *start, loop])
    taken = [*given, *before, *(sequences[element] for element in elements), *same, *constants]
    made = [*passes, *after, *(sequences[element] for element in results[num_states:])]
    return tirx.PrimFunc([*taken, *made], body).with_attr("s_tir", True)


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


def _in_time(
    body: tirx.Stmt, renamed: Mapping[Var, Var], sequences: Mapping[Var, Var], time: Expr, numbers: Mapping[Var, Expr]
) -> tirx.Stmt:
    """Return the body of one step: it reads and writes states under new names, and sequences at one time.

    numbers: values of scalar parameters.
    """

    def load(expr: TensorLoad) -> Expr:
        if expr.source in numbers:
            return numbers[expr.source]
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
