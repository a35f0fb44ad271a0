"""Branches that no sample takes, whose C never runs and is not verified, and loops that always run equally often."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeGuard

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.program.guards import guards_of
from codegen_c.program.steps import Guard, KernelCall, Step
from tvm_ext.execution.instrumented import InstrumentedModel

Sample = Mapping[str, np.ndarray]


def unverified_runs(compiled: Compiled, samples: Sequence[Sample]) -> list[str]:
    """Return a warning for each group of guarded steps that no sample runs, and for each loop of one length.

    The instrumented copy of the C runs every step, so that it has the conditions of all branches.
    """
    groups: dict[tuple[Guard, ...], list[str]] = {}
    for step in compiled.program.steps:
        if guards := guards_of(step):
            groups.setdefault(guards, []).append(step.name)
    passes: dict[KernelCall, set[int]] = {step: set() for step in compiled.program.steps if _is_open(step)}
    if not groups and not passes:
        return []
    if compiled.interface.warm_up_runs:
        return [
            "verification cannot say whether the samples take every branch and end loops after several numbers of "
            "iterations, because a run of the model needs earlier frames"
        ]
    waiting = set(groups)
    with InstrumentedModel(compiled) as model:
        sources = {port.name: port.source for port in model.compiled.interface.inputs}
        for sample in samples:
            values = {**{name: sample[source] for name, source in sources.items()}, **model.trace(sample)}
            waiting = {guards for guards in waiting if not all(_holds(guard, values) for guard in guards)}
            for step, found in passes.items():
                found.add(int(values[step.outputs[0]].reshape(-1)[0]))
            if not waiting and all(len(found) > 1 for found in passes.values()):
                break
    untaken = [_said(groups[guards], len(samples)) for guards in groups if guards in waiting]
    return [*untaken, *(_of_length(step, found, len(samples)) for step, found in passes.items() if len(found) == 1)]


def _is_open(step: Step) -> TypeGuard[KernelCall]:
    """Return True for a loop that data end, whose first output is its number of iterations."""
    end = step.implementation.open_end if isinstance(step, KernelCall) else None
    return end is not None and end.most_passes > 0


def _of_length(step: KernelCall, found: Collection[int], num_samples: int) -> str:
    (passes,) = found
    return (
        f"the loop {step.name} runs {passes:,} iterations with each of {num_samples} samples: verification has not "
        "compared where it ends. Give samples that end it after other numbers of iterations (--verify-inputs)"
    )


def _holds(guard: Guard, values: Sample) -> bool:
    return bool(values[guard.condition].any()) is guard.holds


def _said(steps: Sequence[str], num_samples: int) -> str:
    others = f" and {len(steps) - 1} more steps" if len(steps) > 1 else ""
    return (
        f"none of {num_samples} samples takes the branch of {steps[0]}{others}: the C code of the branch was compiled "
        "but not run. Give samples that take the branch (--verify-inputs)"
    )
