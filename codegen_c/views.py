"""Copies saved: a slice is a part of what it is cut from, and what a concat joins is born in the concat's result.

A view may keep more alive than the copy would: a slice keeps the whole tensor. So a step is saved only where that does
not raise the most bytes alive.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from codegen_c.arena.bound import live_bytes
from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.overlap import overlaps
from codegen_c.kernels.contract import Copy
from codegen_c.program import KernelCall, Part, Program, Tensor, parts_of, reads, writes


def with_views(program: Program, *, apart: Collection[str] = ()) -> Program:
    """The program without the copies that nobody needs, the last ones first: what joins is itself joined.

    apart: tensors that keep a place of their own, and share it with nothing.
    """
    peak = _peaks(program)
    for step in reversed(program.steps):
        if (
            isinstance(step, KernelCall)
            and step.implementation.copies
            and not set(apart) & {*reads(step), *writes(step)}
        ):
            viewed = _without(program, step)
            if viewed is not None and all(_peaks(viewed)[memory] <= most for memory, most in peak.items()):
                program = viewed
                peak = _peaks(program)
    return program


def _peaks(program: Program) -> dict[str, int]:
    """Most bytes alive, by memory."""
    pairs = {pair for step in overlaps(program) for pair in (*step.ascending, *step.descending)}
    spans = lifetimes(program)
    memories = {tensor.memory for tensor in program.tensors.values()}
    return {memory: max(live_bytes(program, spans, pairs, memory, default=memory)) for memory in memories}


def _without(program: Program, step: KernelCall) -> Program | None:
    """The program with a copying step saved; None where its bytes have to stand in two places."""
    copies, output = step.implementation.copies, program.tensors[step.outputs[0]]
    if len(set(step.inputs)) < len(step.inputs) or len(program.steps) == 1:
        return None
    inputs = [program.tensors[step.inputs[copy.input]] for copy in copies]
    if any(tensor.ring or tensor.memory != output.memory for tensor in (*inputs, output)):
        return None
    if len(copies) == 1 and copies[0].count == output.num_elements:
        tensors = _sliced(program, inputs[0], output, copies[0])
    else:
        tensors = _joined(program, inputs, output, copies)
    if tensors is None:
        return None
    return replace(program, tensors=tensors, steps=tuple(other for other in program.steps if other is not step))


def _sliced(program: Program, source: Tensor, output: Tensor, copy: Copy) -> dict[str, Tensor] | None:
    if output.role != "intermediate" or output.part:
        return None
    return _put_inside(program, output, source, copy.source_first)


def _joined(
    program: Program, inputs: list[Tensor], output: Tensor, copies: tuple[Copy, ...]
) -> dict[str, Tensor] | None:
    made = {name for step in program.steps for name in writes(step)}
    if any(tensor.role != "intermediate" or tensor.part for tensor in inputs):
        return None
    if any(tensor.name not in made and tensor.name not in parts_of(program) for tensor in inputs):
        return None
    for tensor, copy in zip(inputs, copies, strict=True):
        program = replace(program, tensors=_put_inside(program, tensor, output, copy.target_first))
    return program.tensors


def _put_inside(program: Program, tensor: Tensor, whole: Tensor, first: int) -> dict[str, Tensor]:
    """All tensors, one of them and its parts as parts of another one, or of what that is part of."""
    if whole.part:
        first, whole = first + whole.part.first, program.tensors[whole.part.tensor]
    moved = {tensor.name: replace(tensor, part=Part(tensor=whole.name, first=first))}
    for other in parts_of(program).get(tensor.name, []):
        inner = other.part.first if other.part else 0
        moved[other.name] = replace(other, part=Part(tensor=whole.name, first=first + inner))
    return {**program.tensors, **moved}
