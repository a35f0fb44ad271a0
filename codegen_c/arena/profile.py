"""Live bytes in each memory of a plan from step to step, and the memory with the highest peak."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.arena.bound import live_bytes
from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.memory_plan import Arena, MemoryPlan
from codegen_c.arena.overlap import overlaps
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop, Step


def live_profile(program: Program, plan: MemoryPlan) -> dict[str, list[int]]:
    """Per memory and step, the most bytes that matter at one moment; the largest is the arena's lower bound.

    program: as `plan_memory` returned it with the plan. Without steps there is one moment.
    """
    planned = replace(program, steps=tuple(_undirected(step) for step in program.steps))
    pairs = {pair for step in overlaps(planned) for pair in (*step.ascending, *step.descending)}
    alive = {name: span for name, span in lifetimes(planned).items() if name in plan.placements}
    default = plan.arenas[0].memory  # planned first, whatever it holds
    return {arena.memory: live_bytes(planned, alive, pairs, arena.memory, default=default) for arena in plan.arenas}


def largest_arena(plan: MemoryPlan) -> Arena | None:
    """The memory that holds the most at its peak; None where nothing has a place."""
    return max(plan.arenas, key=lambda arena: arena.lower_bound_bytes, default=None)


def _undirected(step: Step) -> Step:
    """A loop that only runs a kernel's rows from the last to the first, as the call it stands for."""
    if isinstance(step, Loop) and len(step.body) == 1:
        call = step.body[0]
        if isinstance(call, KernelCall) and call.rows is not None and call.rows.begin.step == -1:
            return replace(call, rows=None)
    return step
