"""Part of report.json about processors that share a run: their steps, instructions, signals, calls of drivers."""

from __future__ import annotations

from typing import Any

from codegen_c.backend.build import Compiled
from codegen_c.kernels.user_functions import DriverCall
from codegen_c.program.makespan import SharedRun
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program, drivers_of
from codegen_c.program.steps import DriverWait, KernelCall, Step, calls


def shared_processors(compiled: Compiled, measured: SharedRun | None) -> dict[str, Any]:
    """Processors that share a run, the caller's first, accelerators last, and signals between cores; {} of one alone.

    Instructions count no waits. makespan_instructions: executed from begin to end of a run, waits included.
    single_processor_instructions: of the model on the one processor that runs it fastest. Of a pipeline,
    interval_instructions: between successive outputs, waits included; stage_instructions: of each processor meanwhile,
    waits left out. Each is None where it was not measured; what stands in for an accelerator's driver is no measurement
    of it. driver_calls: starts and waits of all accelerators in a run.
    """
    program, parallel = compiled.program, compiled.parallel
    drivers = drivers_of(program)
    if parallel is None and not drivers:
        return {}
    others = [_accelerator(program, driver) for driver in drivers.values()]
    waits = sum(isinstance(step, DriverWait) for step in program.steps)
    counts = {"driver_calls": {"starts": sum(len(other["steps"]) for other in others), "waits": waits}}
    if parallel is None:
        steps = [step.name for step in program.steps if not _is_driven(step)]
        first = {"name": compiled.platform.processor.name, "steps": steps, "instructions": None}
        nothing = {"makespan_instructions": None, "single_processor_instructions": None, "signals": 0}
        return {"processors": [first, *others], **nothing, **counts}
    measured = None if drivers else measured
    return {
        "processors": [
            {
                "name": steps.processor,
                "steps": [
                    step.name
                    for entry in steps.entries
                    if isinstance(entry, RunStep) and not _is_driven(step := parallel.program.steps[entry.index])
                ],
                "instructions": measured.instructions[number] if measured else None,
            }
            for number, steps in enumerate(parallel.lists)
        ]
        + others,
        "makespan_instructions": measured.makespan if measured else None,
        "single_processor_instructions": measured.single if measured else None,
        "signals": parallel.num_signals,
        **(_stages(parallel, measured) if parallel.phases else {}),
        **(counts if drivers else {}),
    }


def _stages(parallel: ParallelProgram, measured: SharedRun | None) -> dict[str, Any]:
    """Instructions of a pipeline's stages, and between successive outputs."""
    interval = measured.interval if measured else None
    stages = interval.stages if interval else [None] * len(parallel.lists)
    return {
        "interval_instructions": interval.instructions if interval else None,
        "stage_instructions": dict(zip((steps.processor for steps in parallel.lists), stages, strict=True)),
    }


def _accelerator(program: Program, driver: DriverCall) -> dict[str, Any]:
    """An accelerator, and the steps that it computes."""
    steps = [c.name for c in program.kernel_calls() if c.implementation.driver == driver]
    return {"name": driver.processor, "steps": steps, "instructions": None, "driver": driver.header}


def _is_driven(step: Step) -> bool:
    """True for the start of an accelerator, and for the wait for it."""
    return isinstance(step, DriverWait) or any(
        isinstance(call, KernelCall) and call.implementation.driver for call in calls(step)
    )
