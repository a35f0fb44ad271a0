"""Lower bound of all plans for given lifetimes: the most bytes that are live at any moment of a run.

A moment is a row of a step. At a moment the output rows written so far, the rows of dying inputs that are still needed
and all other live tensors take memory. A step in which no tensors may overlap is a single moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from codegen_c.arena.lifetimes import extents_while
from codegen_c.arena.overlap import distances, sequence_pairs
from codegen_c.kernels.contract import Implementation
from codegen_c.program.program import Program
from codegen_c.program.sequences import needed_and_written
from codegen_c.program.steps import KernelCall, RowSteps, reads, scratch_bytes, scratch_memory, writes
from codegen_c.program.tensors import Tensor


def live_bytes(
    program: Program,
    lifetimes: Mapping[str, tuple[int, int]],
    overlapping: Collection[tuple[str, str]],
    memory: str,
    *,
    default: str,
    kept: Collection[str] = (),
) -> list[int]:
    """Return the most live bytes of `memory` at any moment of each step.

    lifetimes: step ranges of the tensors that a plan gives an offset. overlapping: pairs of an output and an input that
    may overlap. default: memory of scratch that names no memory. kept: tensors that no other tensor may ever overlap.
    """
    result: list[int] = []
    overlapping = frozenset(overlapping)
    placed = {
        name: span for name, span in lifetimes.items()
        if program.tensors[name].memory == memory and not program.tensors[name].part
    }  # fmt: skip
    totals = _totals(program, placed, extents_while(program, lifetimes, kept))
    for index, (step, whole) in enumerate(zip(program.steps, totals, strict=True)):
        total = whole + (scratch_bytes(step) if scratch_memory(step, default) == memory else 0)
        touched = {*reads(step), *writes(step)}
        names = {
            name for name in touched
            if (whole := _whole(program, name)) in placed and placed[whole][0] <= index < placed[whole][1]
        }  # fmt: skip
        saved = 0
        if isinstance(step, KernelCall) and step.outputs[0] in names:
            output = program.tensors[step.outputs[0]]
            own = _whole(program, output.name)
            wholes = [(position, name, _whole(program, name)) for position, name in enumerate(step.inputs)]
            dying = [
                (position, program.tensors[name])
                for position, name, whole in wholes
                if name in names and ((own, whole) in overlapping or (whole, own) in overlapping)
            ]
            saved = shared_bytes(step.implementation, output, dying)
        if isinstance(step, RowSteps):
            pairs = [
                pair for pair in sequence_pairs(program, step)
                if names.issuperset(pair) and (_whole(program, pair[0]), _whole(program, pair[1])) in overlapping
            ]  # fmt: skip
            saved = sequence_shared_bytes(program, step, pairs)
        result.append(total - saved)
    return result or [sum(t.num_bytes for n in lifetimes if (t := program.tensors[n]).memory == memory and not t.part)]


def _whole(program: Program, name: str) -> str:
    """Return the tensor that a plan places for a tensor."""
    part = program.tensors[name].part
    return part.tensor if part else name


def _totals(
    program: Program, lifetimes: Mapping[str, tuple[int, int]], needed: Mapping[str, list[tuple[int, int]]]
) -> list[int]:
    """Return the bytes of all live tensors at each step; of tensors with parts, the span of live bytes."""
    num_steps = len(program.steps)
    changes, varying = [0] * (num_steps + 1), [0] * num_steps
    for name, (begin, end) in lifetimes.items():
        if name in needed:
            for index in range(max(begin, 0), min(end, num_steps)):
                low, high = needed[name][index - begin]
                varying[index] += high - low
        else:
            changes[min(max(begin, 0), num_steps)] += program.tensors[name].num_bytes
            changes[min(max(end, 0), num_steps)] -= program.tensors[name].num_bytes
    return [total + more for total, more in zip(accumulate(changes), varying, strict=False)]


def sequence_shared_bytes(program: Program, step: RowSteps, pairs: Collection[tuple[str, str]]) -> int:
    """Return the bytes that overlap saves in a sequence: its outputs and dying inputs, less their live peak."""
    if not pairs:
        return 0
    outputs, inputs = (sorted({pair[side] for pair in pairs}) for side in (0, 1))
    whole = {name: program.tensors[name].num_bytes for name in (*outputs, *inputs)}
    moments = needed_and_written(step, program.tensors, outputs, inputs)
    most = max(
        sum(written.values()) + sum(whole[name] - first for name, first in needed.items())
        for written, needed in moments
    )
    return sum(whole.values()) - most


def shared_bytes(implementation: Implementation, output: Tensor, dying: Sequence[tuple[int, Tensor]]) -> int:
    """Return the most bytes that the output and the dying inputs can share, in the better order of rows.

    Inputs do not overlap each other. Either all begin above the begin of the output, or a single input begins below it.
    A count of live rows over time would allow at least as much sharing as these distances do.
    """
    if not dying:
        return 0
    apart = [distances(implementation, position, tensor, output) for position, tensor in dying]
    ascending = min(sum(t.num_bytes for _, t in dying), output.num_bytes - min(up for up, _ in apart))
    descending = max(t.num_bytes - down for (_, t), (_, down) in zip(dying, apart, strict=True))
    return max(0, ascending, descending)
