"""Rules for memories that not every processor reaches; part of the validator, and shares no code with what places.

A processor reads and writes the memories that the platform's links join it to, in either direction. A step touches its
tensors, its scratch and its constants; of a call that an accelerator computes, that one touches them. A DMA moves
between memories that a link of its own joins.
"""

from __future__ import annotations

from collections.abc import Iterator

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.program.parallel import ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.steps import Call, DriverWait, KernelCall, Step, Transfer, Wait, calls
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.platform import Platform


def check_reach(
    program: Program, plan: MemoryPlan, platform: Platform, parallel: ParallelProgram | None = None
) -> None:
    """Raises PlanRejected naming a step, its processor, and what it touches in a memory that it does not reach.

    parallel: the program in lists, whose processors run its steps; without, the platform's first one runs all.
    """
    for arena in plan.arenas:
        wanted = platform.memory(arena.inside).alignment_bytes
        if arena.alignment_bytes % wanted:
            raise PlanRejected(f"{arena.memory}: lies at multiples of {arena.alignment_bytes} B, not of {wanted} B.")
    inside = {arena.memory: arena.inside for arena in plan.arenas}
    joined = {(link.source, link.target) for link in platform.links}
    by_dma = {(link.source, link.target) for link in platform.links if link.dma}

    def memory_of(name: str) -> str | None:
        """The platform's memory that holds a tensor or scratch; None for what the caller holds."""
        place = plan.placements.get(name)
        return inside.get(place.memory, place.memory) if place else None

    runners = _runners(parallel) if parallel else {}
    phases = (program.steps, *(parallel.phases if parallel else ()))
    for index, step in (pair for steps in phases for pair in enumerate(steps)):
        for call in calls(step):
            where = f"step {index} ({step.name})"
            if isinstance(call, Transfer) and call.number is not None:
                ends = _source_memory(program, call, memory_of(call.source)), memory_of(call.target)
                if None not in ends and ends not in by_dma:
                    raise PlanRejected(f"{where}: no DMA of {platform.name} moves from {ends[0]} to {ends[1]}.")
                continue
            driver = call.implementation.driver if isinstance(call, KernelCall) else None
            processor = driver.processor if driver else runners.get(index, platform.processors[0].name)
            for name, memory in _touched(program, step, call):
                held = memory or memory_of(name)
                if held and not {(processor, held), (held, processor)} & joined:
                    raise PlanRejected(f"{where}: {processor} touches {name} in {held}, which it does not reach.")


def _source_memory(program: Program, transfer: Transfer, placed: str | None) -> str | None:
    return program.constants[transfer.source].memory if transfer.source_is_constant else placed


def _runners(parallel: ParallelProgram) -> dict[int, str]:
    """The processor whose list each step is in."""
    return {
        entry.index: steps.processor
        for steps in parallel.lists
        for entry in steps.entries
        if isinstance(entry, RunStep)
    }


def _touched(program: Program, step: Step, call: Call) -> Iterator[tuple[str, str]]:
    """Operands of a call; and memories of those that are constants, which no plan places."""
    if isinstance(call, Wait | DriverWait):  # what they wait for has been looked at where it started
        return
    if isinstance(call, Transfer):
        held = program.constants[call.source].memory if call.source_is_constant else ""
        yield from ((call.source, held), (call.target, ""))
        return
    fetched = dict(call.fetched)
    yield from ((name, "") for name in (*call.inputs, *call.outputs, *fetched.values(), f"{step.name}_scratch"))
    yield from ((name, program.constants[name].memory) for name in call.constants if name not in fetched)
