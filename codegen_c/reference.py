"""Runs a Program in numpy with the kernels' references: what the C code must compute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen_c.program import Program, Step, Transfer, calls

Array = np.ndarray


def run(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the program, by name; inputs are in stored layout, of the program's shapes and types."""
    values = dict(inputs)
    for step in program.steps:
        values |= run_step(program, step, values)
    return values


def run_step(program: Program, step: Step, values: Mapping[str, Array]) -> dict[str, Array]:
    """What a step writes, given what it reads. A loop's row ranges together cover each output once."""
    written: dict[str, Array] = {}
    for call in calls(step):
        if isinstance(call, Transfer):
            written[call.target] = values[call.source].reshape(program.tensors[call.target].shape)
            continue
        known = {**values, **written}
        seen = [known[name].reshape(shape) for name, shape in zip(call.inputs, call.input_shapes, strict=True)]
        results = call.implementation.reference(seen)
        for name, result in zip(call.outputs, results, strict=True):
            tensor = program.tensors[name]
            written[name] = np.ascontiguousarray(result).astype(tensor.dtype, copy=False).reshape(tensor.shape)
    return written
