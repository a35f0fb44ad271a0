"""Result of planning: an offset for every tensor, the size of each arena, and live bytes by step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen_c.arena.bound import live_bytes
from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.overlap import overlaps
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop, Step
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.platform import STATE_MEMORY


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Bytes [offset, offset + num_bytes) of a memory, during steps [begin, end).

    part_of: for a part of another tensor, the placement that contains its bytes.
    """

    name: str
    memory: str
    offset: int
    num_bytes: int
    begin: int
    end: int
    is_scratch: bool = False
    part_of: str | None = None


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The planned bytes of one memory, with the peak of live bytes and the step of the peak.

    proved: True if no offsets need fewer bytes, for these lifetimes and overlaps. container: the platform's memory
    that contains the arena; empty if it is `memory` itself. alignment_bytes: the arena and everything in it begin at
    multiples of this. planner: planner of another distribution that gave the offsets; empty for the built-in planner.
    """

    memory: str
    num_bytes: int
    lower_bound_bytes: int
    peak_step: int
    proved: bool = False
    container: str = ""
    alignment_bytes: int = ALIGNMENT_BYTES
    planner: str = ""

    @property
    def inside(self) -> str:
        """Memory of the platform that contains the arena."""
        return self.container or self.memory


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """Memory and offset of every tensor and of every kernel's scratch. Tensors in the caller's memory have no entry."""

    placements: dict[str, Placement]
    arenas: tuple[Arena, ...]

    def bytes_in(self, memory: str) -> int:
        """Return the bytes of arenas and states in a memory of the platform, or 0."""
        return sum(arena.num_bytes for arena in self.arenas if arena.inside == memory)

    @property
    def memories_bytes(self) -> dict[str, int]:
        """Bytes of arenas and states, by memory of the platform that contains any."""
        return {arena.inside: self.bytes_in(arena.inside) for arena in self.arenas}

    @property
    def places(self) -> dict[str, tuple[str, int]]:
        """Memory and offset, by name of a placement."""
        return {name: (place.memory, place.offset) for name, place in self.placements.items()}

    @property
    def state_bytes(self) -> int:
        """Bytes of the struct of states, which are kept from run to run."""
        return sum(arena.num_bytes for arena in self.arenas if arena.memory == STATE_MEMORY)

    @property
    def arena_bytes(self) -> int:
        """Bytes of all arenas, states included."""
        return sum(arena.num_bytes for arena in self.arenas)

    @property
    def lower_bound_bytes(self) -> int:
        """Sum of the lower bounds of all arenas."""
        return sum(arena.lower_bound_bytes for arena in self.arenas)


def peak_placements(plan: MemoryPlan, arena: Arena) -> list[Placement]:
    """Return the placements that are live in the peak step of an arena, the largest first. Parts are left out."""
    alive = [
        place
        for place in plan.placements.values()
        if place.memory == arena.memory and place.begin <= arena.peak_step < place.end and place.part_of is None
    ]
    return sorted(alive, key=lambda place: (-place.num_bytes, place.name))


def scratch_name(step_name: str) -> str:
    """Return the name of a step's scratch in the plan."""
    return f"{step_name}_scratch"


def live_profile(program: Program, plan: MemoryPlan) -> dict[str, list[int]]:
    """Return the most live bytes at each step, by memory. The peak is the lower bound of the arena.

    program: the program that `plan_memory` returned with the plan. A program without steps counts as one moment.
    """
    planned = replace(program, steps=tuple(_undirected(step) for step in program.steps))
    pairs = {pair for step in overlaps(planned) for pair in (*step.ascending, *step.descending)}
    alive = {name: span for name, span in lifetimes(planned).items() if name in plan.placements}
    default = plan.arenas[0].memory  # the default memory is always planned first, even if it is empty
    return {arena.memory: live_bytes(planned, alive, pairs, arena.memory, default=default) for arena in plan.arenas}


def largest_arena(plan: MemoryPlan) -> Arena | None:
    """Return the arena with the highest lower bound, or None if the plan has no arenas."""
    return max(plan.arenas, key=lambda arena: arena.lower_bound_bytes, default=None)


def runs_backward(step: Step) -> KernelCall | None:
    """Return the kernel call of a loop that only computes rows from last to first, or None for other steps."""
    call = step.body[0] if isinstance(step, Loop) and len(step.body) == 1 else None
    is_backward = isinstance(call, KernelCall) and call.rows is not None and call.rows.begin.step == -1
    return call if isinstance(call, KernelCall) and is_backward else None


def _undirected(step: Step) -> Step:
    """Return the step; for a loop that only computes rows from last to first, the call of the whole kernel instead."""
    call = runs_backward(step)
    return replace(call, rows=None) if call else step
