"""Run a Program in numpy with the kernels' references, to get the results that the C code must compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen_c.program.program import Program, parts_of
from codegen_c.program.steps import DriverWait, Step, Transfer, Wait, calls
from codegen_c.program.tensors import KeptState

Array = np.ndarray


def run(program: Program, inputs: Mapping[str, Array], states: Mapping[str, Array] | None = None) -> dict[str, Array]:
    """Return every tensor of the program, by name. Inputs are in stored layout, with the program's shapes and types.

    states: by tensor, the states that the run before left, as `next_states` returns them; by default the initial
    states.
    """
    values = {**inputs, **(first_states(program) if states is None else states)}
    for step in program.steps:
        values |= run_step(program, step, values)
    return values | {name: value_of(program, name, values) for name in program.outputs}


def first_states(program: Program) -> dict[str, Array]:
    """Return the states before the first run, by tensor. Rows of a ring that are pushed later are arbitrary."""
    return {state.tensor: _as_found(state, state.initial) for state in program.states}


def next_states(program: Program, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the states before the next run, from all tensors of a run."""
    return {state.tensor: _as_found(state, values[state.tensor]) for state in program.states}


def _as_found(state: KeptState, left: Array) -> Array:
    """Return a state as the next run finds it: a ring with its rows moved up."""
    if state.update != "ring":
        return left
    rows = next(extent for extent in left.shape if extent > 1)
    return np.roll(left.reshape(rows, -1), -state.pushed, axis=0).reshape(left.shape)


def run_step(program: Program, step: Step, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors that a step writes. The row ranges of a loop together cover each output once."""
    written: dict[str, Array] = {}
    for call in calls(step):
        if isinstance(call, Wait | DriverWait):  # the results were computed when the transfer or call started
            continue
        if isinstance(call, Transfer):
            written |= _kept(
                program, {call.target: copied(program, call, {**values, **written})}, {**values, **written}
            )
            continue
        known = {**values, **written}
        seen = [
            value_of(program, name, known).reshape(shape)
            for name, shape in zip(call.inputs, call.input_shapes, strict=True)
        ]
        results = call.implementation.reference(seen)
        made = {
            name: np.ascontiguousarray(result).astype(tensor.dtype, copy=False).reshape(tensor.shape)
            for name, result in zip(call.outputs, results, strict=True)
            if (tensor := program.tensors[name])
        }
        written |= _kept(program, made, known)
    return written


def _kept(program: Program, made: Mapping[str, Array], values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors that a step writes, and the updated states of which they are parts."""
    found = dict(made)
    for name, array in made.items():
        part = program.tensors[name].part
        if part and program.tensors[part.tensor].role == "state":
            whole = found.get(part.tensor, values[part.tensor]).copy()
            whole.reshape(-1)[part.first : part.first + array.size] = array.reshape(-1)
            found[part.tensor] = whole
    return found


def copied(program: Program, transfer: Transfer, values: Mapping[str, Array]) -> Array:
    """Return the elements that a transfer writes to its target."""
    shape = program.tensors[transfer.target].shape
    if transfer.source_is_constant:
        return program.constants[transfer.source].data.reshape(shape)
    return value_of(program, transfer.source, values).reshape(shape)


def value_of(program: Program, name: str, values: Mapping[str, Array]) -> Array:
    """Return a tensor that was written as a whole, as a part of another tensor, or in parts."""
    if name in values:
        return values[name]
    tensor = program.tensors[name]
    if tensor.part:
        whole = value_of(program, tensor.part.tensor, values).reshape(-1)
        return whole[tensor.part.first + tensor.element_places()].reshape(tensor.shape)
    whole = np.empty(tensor.num_elements, tensor.dtype)
    for part in parts_of(program)[name]:
        if part.part and part.name in values:
            whole[part.part.first + part.element_places()] = values[part.name].reshape(-1)
    return whole.reshape(tensor.shape)
