"""Branches of a model that no sample takes. Their C code is compiled but never run, and is therefore not verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from codegen_c.backend.build import Compiled
from codegen_c.program.guards import guards_of
from codegen_c.program.steps import Guard
from tvm_ext.execution.instrumented import InstrumentedModel

Sample = Mapping[str, np.ndarray]


def untaken_branches(compiled: Compiled, samples: Sequence[Sample]) -> list[str]:
    """Return a warning for each group of guarded steps that no sample runs.

    The instrumented copy of the C runs every step, so that it has the conditions of all branches.
    """
    groups: dict[tuple[Guard, ...], list[str]] = {}
    for step in compiled.program.steps:
        if guards := guards_of(step):
            groups.setdefault(guards, []).append(step.name)
    if not groups:
        return []
    if compiled.interface.warm_up_runs:
        return [
            "verification cannot say whether the samples take every branch, because a run of the model needs earlier "
            "frames"
        ]
    waiting = set(groups)
    with InstrumentedModel(compiled) as model:
        sources = {port.name: port.source for port in model.compiled.interface.inputs}
        for sample in samples:
            values = {**{name: sample[source] for name, source in sources.items()}, **model.trace(sample)}
            waiting = {guards for guards in waiting if not all(_holds(guard, values) for guard in guards)}
            if not waiting:
                break
    return [_said(groups[guards], len(samples)) for guards in groups if guards in waiting]


def _holds(guard: Guard, values: Sample) -> bool:
    return bool(values[guard.condition].any()) is guard.holds


def _said(steps: Sequence[str], num_samples: int) -> str:
    others = f" and {len(steps) - 1} more steps" if len(steps) > 1 else ""
    return (
        f"none of {num_samples} samples takes the branch of {steps[0]}{others}: the C code of the branch was compiled "
        "but not run. Give samples that take the branch (--verify-inputs)"
    )
