"""Finish of a float composite, behind its anchor: a bias, and operators element by element."""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Call, Composite, NoMatch
from codegen_c.composites.scalar_calls import ProgramBuilder
from codegen_c.operators.kinds import TensorType


def chain_of(builder: ProgramBuilder, calls: tuple[Call, ...], output: TensorType) -> NoMatch | None:
    """Appends calls to a program; NoMatch where one of them is not computed element by element."""
    channels = output.shape[-1] if output.shape else 1
    for call in calls:
        if failed := builder.add(call, channels):
            return failed
    return None


def after_anchor(
    composite: Composite, anchor: Call, *, takes_bias: bool, num_operands: int = 1
) -> tuple[ProgramBuilder, np.ndarray] | NoMatch:
    """The program of the operators behind the anchor, and the bias of the first addition where the kernel takes one.

    num_operands: how many of the anchor's first operands are activations; they are the first inputs.
    """
    output, rest = anchor.type or composite.outputs[0], composite.calls[1:]
    if not output.shape:
        return NoMatch("gives a single number")
    channels = output.shape[-1]
    builder = ProgramBuilder()
    builder.inputs += [operand.parameter or 0 for operand in anchor.operands[:num_operands]]
    builder.element(anchor.var)
    bias = np.zeros(channels, dtype=np.float32)
    if takes_bias and rest and rest[0].name == "add":
        arrays = [value.array for value in rest[0].operands if value.array is not None]
        if len(arrays) == 1 and arrays[0].shape[-1:] == (channels,) and arrays[0].size == channels:
            bias = np.ascontiguousarray(arrays[0].reshape(-1))
            builder.element(rest[0].var)
            rest = rest[1:]
    failed = chain_of(builder, rest, output)
    return failed or (builder, bias)


def inputs_of(composite: Composite, builder: ProgramBuilder) -> tuple[TensorType, ...]:
    """Types of the inputs that a program and its anchor read."""
    return tuple(composite.inputs[index] for index in builder.inputs)
