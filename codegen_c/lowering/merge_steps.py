"""Merge neighbouring independent calls of one function into one step."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop, Step


def merge_steps(program: Program) -> Program:
    """Return the program with such calls merged into loops of one iteration.

    Tensors of a merged step are live during all of its calls. This may take more memory, so the caller must compare.
    """
    runs: list[list[Step]] = []
    for step in program.steps:
        if runs and _belongs(step, runs[-1]):
            runs[-1].append(step)
        else:
            runs.append([step])
    if len(runs) == len(program.steps):
        return program
    return replace(program, steps=tuple(_merged(run) for run in runs))


def _belongs(step: Step, run: list[Step]) -> bool:
    """Return True if a step can join a run of steps.

    It must call the same function on the same processor, and read none of their outputs.
    """
    if not isinstance(step, KernelCall) or step.rows is not None or step.implementation.callback:
        return False
    if step.implementation.driver:
        return False
    return all(
        isinstance(other, KernelCall)
        and other.rows is None
        and other.implementation.function == step.implementation.function
        and other.processor == step.processor
        and not set(other.outputs) & set(step.inputs)
        for other in run
    )


def _merged(run: list[Step]) -> Step:
    body = tuple(step for step in run if isinstance(step, KernelCall))
    return Loop(name=body[0].name, count=1, body=body) if len(body) > 1 else run[0]
