"""Per-core schedules of a program for several processors, and the memory that they use at the same time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from codegen_c.arena.at_once import handed_over
from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.emit.functions import CONTEXT_NAMES, RESERVED
from codegen_c.program.parallel import ParallelProgram, order_of
from codegen_c.program.phases import (
    check_stages,
    shared_by_stages,
    stage_order,
    with_copies,
    with_copies_of_states,
    with_phases,
)
from codegen_c.program.program import Program, drivers_of
from codegen_c.program.share_steps import lists_of, share_steps
from codegen_c.program.steps import processor_of
from tvm_ext.core.errors import BadOptions, PlanRejected
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform

Plan = Callable[..., tuple[Program, MemoryPlan]]
Shared = tuple[Program, MemoryPlan, ParallelProgram]


def processors_of(program: Program, platform: Platform) -> tuple[str, ...]:
    """Return the processors that run steps of a program. The platform's first processor, the caller's, is first."""
    used = {processor_of(step) for step in program.steps}
    others = [processor.name for processor in platform.processors[1:] if processor.name in used]
    return (platform.processor.name, *others)


def check_shared(processors: Sequence[str], options: BuildOptions) -> None:
    """Raise BadOptions for an option that several processors do not support."""
    several, way_out = f"steps run on {' and '.join(processors)}", f"processors = {processors[0]}"
    if len(processors) == 1:
        return
    if options.context == "caller":
        raise BadOptions(
            f"context = 'caller': {several}, which serve one run at a time, but several instances may run at once. "
            f"Choose context = 'static', and copy states in and out to alternate between streams, or {way_out}."
        )
    if options.io == "stream" and options.placement_objective == "throughput":
        raise BadOptions(
            f"io = 'stream': {several} as stages of a pipeline, which gets whole tensors by put and take. Choose "
            f"placement_objective = 'makespan', io = 'arena' or 'caller', or {way_out}."
        )


def driver_names(platform: Platform, model: str) -> set[str]:
    """Return names that no tensor or step may have, because with the model's prefix they name a driver's function.

    Raises BadOptions if a driver's function has the name of a function that the package itself defines.
    """
    offloads = [processor.offload for processor in platform.processors if processor.offload]
    functions = {name for one in offloads for name in (one.wait, *(entry.start for entry in one.operators))}
    found = {name.removeprefix(f"{model}_") for name in functions if name.startswith(f"{model}_")}
    if taken := sorted(found & {*RESERVED, *CONTEXT_NAMES}):
        raise BadOptions(
            f"name = {model!r}: {model}_{taken[0]} is also a function of a driver of {platform.name}; give the model "
            "another name."
        )
    return found


def check_driven(program: Program, processors: Sequence[str], options: BuildOptions) -> None:
    """Raise BadOptions for an option that accelerators do not support."""
    drivers = sorted(drivers_of(program))
    if not drivers:
        return
    several, way_out = f"steps run on {' and '.join(drivers)}", f"processors = {processors[0]}"
    if options.context == "caller":
        raise BadOptions(
            f"context = 'caller': {several}, which several instances at once would start twice. Choose context = "
            f"'static', or {way_out}."
        )


def shared_plan(
    candidates: Collection[Program],
    processors: Sequence[str],
    platform: Platform,
    plan: Plan,
    *,
    pipelined: bool = False,
    held: Collection[str] = (),
) -> Shared:
    """Return per-core schedules and their memory plan: the first that fits, or else the plan with the fewest bytes.

    candidates: forms of the program, the form with the fewest copies first. pipelined: True if the processors work on
    successive inputs, as stages of a pipeline. held: tensors in the caller's memory.
    The first attempt plans memory for every order in which steps may run. If that exceeds a memory, the second attempt
    plans memory for the program's own order, and adds signals between steps that use the same bytes. A processor whose
    steps are all removed in a form has no schedule.
    """
    tried: list[Shared] = []
    stages = [candidate for candidate in candidates if pipelined and _are_stages(candidate, processors)]
    for shared in (partial(_in_stages, held=held),) if stages else (_free, _in_order):
        for candidate in stages or candidates:
            tried.append(shared(candidate, processors, plan))
            if _fits(tried[-1][1], platform):
                return tried[-1]
    return min(tried, key=_bytes)


def _lists(program: Program, processors: Sequence[str], *, staged: bool = False) -> dict[str, list[str]]:
    """Return the names of each processor's steps.

    staged: copies that change a state run on the processor that uses the state.
    """
    assignment = {step.name: name for step in program.steps if (name := processor_of(step))}
    assignment = with_copies_of_states(program, assignment) if staged else assignment
    caller, *others = processors
    return lists_of(program, [caller, *(name for name in others if name in assignment.values())], assignment)


def _free(program: Program, processors: Sequence[str], plan: Plan) -> Shared:
    """Plan for every order of steps that signals allow: between producers and consumers of values, and where a
    processor may overwrite an operand that another processor copied."""
    lists = _lists(program, processors)
    parallel = share_steps(program, lists)
    parallel = share_steps(parallel.program, lists, ahead=handed_over(parallel.program, order_of(parallel)))
    planned, places = plan(parallel.program, order=order_of(parallel))
    return planned, places, replace(parallel, program=planned)


def _in_order(program: Program, processors: Sequence[str], plan: Plan) -> Shared:
    """Plan for the program's own order, and add a signal wherever a step reuses the bytes of another step."""
    lists = _lists(program, processors)
    planned, places = plan(share_steps(program, lists).program)
    parallel = share_steps(planned, lists, places.places)
    return parallel.program, places, parallel


def _are_stages(program: Program, processors: Sequence[str]) -> bool:
    """Return True if values only go from a stage to a later stage, never back."""
    try:
        check_stages(share_steps(program, _lists(program, processors, staged=True)))
    except PlanRejected:
        return False
    return True


def _in_stages(program: Program, processors: Sequence[str], plan: Plan, *, held: Collection[str]) -> Shared:
    """Plan for a pipeline: stages work on different inputs at the same time, and never share bytes meanwhile."""
    parallel = share_steps(program, _lists(program, processors, staged=True))
    count = len(parallel.lists)
    copied, copies = with_copies(parallel.program, shared_by_stages(parallel, held), count)
    phased = [name for names in copies.values() for name in names]
    planned, places = plan(copied, order=stage_order(parallel), phased=phased)
    return planned, places, with_phases(replace(parallel, program=planned), copies, count)


def _bytes(shared: Shared) -> int:
    return shared[1].arena_bytes


def _fits(plan: MemoryPlan, platform: Platform) -> bool:
    return all(plan.bytes_in(m.name) <= m.usable_bytes for m in platform.memories)
