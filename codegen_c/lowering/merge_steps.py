"""Neighbouring calls of one function that do not depend on each other become one step."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop, Step


def merge_steps(program: Program) -> Program:
    """The program with such runs as loops that go round once; what they touch is alive during all of them.

    That may take more memory: it is for the caller to compare.
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
    """True where a step calls the function of all of a run, on their processor, and reads none of their outputs."""
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
