"""Runs a Program in numpy with the kernels' references: what the C code must compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen_c.program.program import Program, Step, Transfer, Wait, calls, parts_of

Array = np.ndarray


def run(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the program, by name; inputs are in stored layout, of the program's shapes and types."""
    values = dict(inputs)
    for step in program.steps:
        values |= run_step(program, step, values)
    return values | {name: value_of(program, name, values) for name in program.outputs}


def run_step(program: Program, step: Step, values: Mapping[str, Array]) -> dict[str, Array]:
    """What a step writes, given what it reads. A loop's row ranges together cover each output once."""
    written: dict[str, Array] = {}
    for call in calls(step):
        if isinstance(call, Wait):
            continue
        if isinstance(call, Transfer):
            written[call.target] = copied(program, call, values)
            continue
        known = {**values, **written}
        seen = [
            value_of(program, name, known).reshape(shape)
            for name, shape in zip(call.inputs, call.input_shapes, strict=True)
        ]
        results = call.implementation.reference(seen)
        for name, result in zip(call.outputs, results, strict=True):
            tensor = program.tensors[name]
            written[name] = np.ascontiguousarray(result).astype(tensor.dtype, copy=False).reshape(tensor.shape)
    return written


def copied(program: Program, transfer: Transfer, values: Mapping[str, Array]) -> Array:
    """What a transfer leaves in its target."""
    shape = program.tensors[transfer.target].shape
    if transfer.source_is_constant:
        return program.constants[transfer.source].data.reshape(shape)
    return value_of(program, transfer.source, values).reshape(shape)


def value_of(program: Program, name: str, values: Mapping[str, Array]) -> Array:
    """A tensor that was written as itself, as part of another one, or as its parts."""
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
