"""Steps that run their rows from the last to the first: those whose output the plan put above a dying input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from codegen_c.arena.memory_plan import Placement
from codegen_c.program.program import Program
from codegen_c.program.steps import AffineRow, KernelCall, Loop, RowRange, Step


def with_directions(program: Program, placements: Mapping[str, Placement]) -> Program:
    """The program with such steps as loops over single rows, last row first."""
    return replace(program, steps=tuple(_directed(step, placements) for step in program.steps))


def _directed(step: Step, placements: Mapping[str, Placement]) -> Step:
    if not isinstance(step, KernelCall) or step.implementation.spatial is None:
        return step
    output = placements.get(step.outputs[0])
    inputs = [placements[name] for name in step.inputs if name in placements]
    if output is None or not any(
        p.memory == output.memory and p.offset < output.offset < p.offset + p.num_bytes for p in inputs
    ):
        return step
    last = step.implementation.spatial.output_rows - 1
    rows = RowRange(begin=AffineRow(base=last, step=-1), end=AffineRow(base=last + 1, step=-1))
    return Loop(name=step.name, count=last + 1, body=(replace(step, rows=rows),))
