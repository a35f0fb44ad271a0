"""Remove copies: a slice becomes a part of its source, and the inputs of a concat become parts of its result.

A view may keep more bytes live than the copy did: a slice keeps its whole source live. So a copy is only removed if the
peak of live bytes does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from codegen_c.arena.local_peaks import changed, counted
from codegen_c.kernels.contract import Copy
from codegen_c.program.program import Program, parts_of
from codegen_c.program.share_functions import has_constants_of, with_rings
from codegen_c.program.steps import KernelCall, RowSteps, Step, reads, writes
from codegen_c.program.tensors import Part, Tensor


def with_views(program: Program, *, apart: Collection[str] = ()) -> Program:
    """Return the program without copies that can be removed.

    The last copies are removed first, because the result of a concat may itself be an input of a concat. apart: tensors
    that must not share their bytes.
    """
    known = counted(program)
    peaks = known.peaks
    for name in reversed([step.name for step in program.steps if _saves(step)]):
        for viewed in _ways(known.program, name, apart):
            found = changed(known, viewed, peaks)
            if found is not None:
                known, peaks = found, found.peaks
                break
    return _sharing(known.program)


def _saves(step: Step) -> bool:
    """Return True if a step only copies elements, so that a view may replace it."""
    return isinstance(step, KernelCall) and bool(step.implementation.copies)


def _sharing(program: Program) -> Program:
    """Return the program with functions shared again between calls of sequences whose rows are no longer contiguous."""
    apart = [call for call in program.kernel_calls() if call.stored.row_pitch and call.stored.at_once]
    sharing = with_rings([(call, call.stored) for call in apart])
    for call in apart:
        program = _with_call(program, call, sharing[call.name])
    return program


def _ways(program: Program, name: str, apart: Collection[str]) -> Iterator[Program]:
    """Yield the program with a step removed, then also with the steps removed that join its inputs.

    Removing only the outer step may raise the peak although removing all of them does not.
    """
    step = next((step for step in program.steps if step.name == name), None)
    if not isinstance(step, KernelCall) or not _saves(step):
        return
    viewed = None if set(apart) & {*reads(step), *writes(step)} else _without(program, step)
    if viewed is None:
        return
    yield viewed
    joined = set(step.inputs)
    inner = [other.name for other in viewed.steps if not joined.isdisjoint(writes(other))]
    for other in inner:
        viewed = next(reversed([*_ways(viewed, other, apart)]), viewed)
    if inner:
        yield viewed


def _without(program: Program, step: KernelCall) -> Program | None:
    """Return the program with a copying step removed; None if its bytes are needed at two offsets."""
    copies, output = step.implementation.copies, program.tensors[step.outputs[0]]
    if len(set(step.inputs)) < len(step.inputs) or len(program.steps) == 1:
        return None
    inputs = [program.tensors[step.inputs[copy.input]] for copy in copies]
    if any(tensor.ring or tensor.memory != output.memory for tensor in (*inputs, output)):
        return None
    rest = replace(program, steps=tuple(other for other in program.steps if other is not step))
    if len(copies) == 1 and copies[0].count == output.num_elements:
        return _sliced(rest, inputs[0], output, copies[0])
    return _joined(rest, inputs, output, copies)


def _sliced(program: Program, source: Tensor, output: Tensor, copy: Copy) -> Program | None:
    if output.role != "intermediate" or output.part or (source.part and source.part.pitch):
        return None
    return _put_inside(program, output, source, Part(tensor=source.name, first=copy.source_first))


def _joined(program: Program, inputs: list[Tensor], output: Tensor, copies: tuple[Copy, ...]) -> Program | None:
    """Return the program with all joined inputs as parts of the result; None if an input cannot be."""
    if any(tensor.role != "intermediate" or tensor.part for tensor in inputs):
        return None
    makers = _writers(program, [tensor.name for tensor in inputs])
    if any(not makers[tensor.name] and tensor.name not in parts_of(program) for tensor in inputs):
        return None
    around = output.part.pitch if output.part else None
    found: Program | None = program
    for tensor, copy in zip(inputs, copies, strict=True):
        if around and (not copy.pitch or not _are_pixels(tensor, copy)):
            return None
        pitch, run_axes = (around or copy.pitch) or None, 1 if _are_pixels(tensor, copy) else 2
        part = Part(tensor=output.name, first=copy.target_first, pitch=pitch, run_axes=run_axes if pitch else 1)
        if part.pitch:
            found = _written_apart(found, tensor, copy, part.pitch, makers[tensor.name])
        if found is None:
            return None
        found = _put_inside(found, tensor, output, part)
    return found


def _are_pixels(tensor: Tensor, copy: Copy) -> bool:
    """Return True if the copied runs are pixels; False for rows of a strip of columns."""
    return tensor.shape[-1:] == (copy.run,)


def _writers(program: Program, names: Sequence[str]) -> dict[str, list[Step]]:
    """Return the steps that write each tensor."""
    found: dict[str, list[Step]] = {name: [] for name in names}
    for step in program.steps:
        for name in writes(step):
            if name in found:
                found[name].append(step)
    return found


def _written_apart(program: Program, tensor: Tensor, copy: Copy, pitch: int, writing: Sequence[Step]) -> Program | None:
    """Return the program whose kernel writes the tensor with gaps between pixels or rows; None if it cannot.

    writing: the steps that write the tensor. A kernel in a sequence may write rows with gaps; pixels with gaps need a
    kernel that runs alone. No other step may read the tensor.
    """
    by_pixels = _are_pixels(tensor, copy)
    if tensor.name in parts_of(program) or not (by_pixels or math.prod(tensor.shape[-2:]) == copy.run):
        return None
    writers = [
        call for step in writing for call in _kernels(step, in_rows=not by_pixels) if tensor.name in call.outputs
    ]
    if len(writing) != 1 or len(writers) != 1:
        return None
    call, implementation = writers[0], writers[0].implementation
    takes = implementation.pitched if by_pixels else implementation.row_pitched
    if not takes or implementation.keeping is None or len(call.outputs) > 1:
        return None
    if any(tensor.name in reads(step) for step in program.steps):
        return None
    stored = replace(call.stored, pitch=pitch) if by_pixels else replace(call.stored, row_pitch=pitch)
    apart = replace(implementation.keeping(stored), alternatives=implementation.alternatives)
    if not has_constants_of(apart, implementation):
        return None
    made = replace(apart, keeping=implementation.keeping, in_place=())
    return _with_call(program, call, replace(call, implementation=made, stored=stored, rings=()))


def _kernels(step: Step, *, in_rows: bool) -> list[KernelCall]:
    """Return the kernel call that a step is. in_rows: also return the calls of a sequence."""
    if isinstance(step, KernelCall):
        return [step]
    return [*step.body] if in_rows and isinstance(step, RowSteps) else []


def _with_call(program: Program, old: KernelCall, new: KernelCall) -> Program:
    """Return the program with one call replaced, alone or in a sequence."""

    def changed(step: Step) -> Step:
        if isinstance(step, RowSteps) and old in step.body:
            return replace(step, body=tuple(new if call is old else call for call in step.body))
        return new if step is old else step

    return replace(program, steps=tuple(changed(step) for step in program.steps))


def _put_inside(program: Program, tensor: Tensor, whole: Tensor, part: Part) -> Program:
    """Return the program with a tensor and its parts as parts of another tensor, or of the tensor that contains it."""
    if whole.part:
        part = replace(part, tensor=whole.part.tensor, first=part.first + whole.part.first)
    moved = {tensor.name: replace(tensor, part=part)}
    for other in parts_of(program).get(tensor.name, []):
        inner = other.part or part
        moved[other.name] = replace(other, part=replace(inner, tensor=part.tensor, first=part.first + inner.first))
    return replace(program, tensors={**program.tensors, **moved})
