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

    part_of: the placement that a part of another tensor lies in, and whose bytes these are.
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
    """One memory's share: bytes used, the most bytes alive at a step, and that step.

    proved: whether no offsets need fewer bytes, for these lifetimes and overlaps.
    home: the platform's memory, empty where it is `memory` itself. alignment_bytes: the arena begins at a multiple of
    it, and so does everything in it. planner: of another distribution, which the offsets are of; empty for our own.
    """

    memory: str
    num_bytes: int
    lower_bound_bytes: int
    peak_step: int
    proved: bool = False
    home: str = ""
    alignment_bytes: int = ALIGNMENT_BYTES
    planner: str = ""

    @property
    def inside(self) -> str:
        """The platform's memory that the arena lies in."""
        return self.home or self.memory


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """A place for every tensor and every kernel's scratch. Tensors that the caller holds have none."""

    placements: dict[str, Placement]
    arenas: tuple[Arena, ...]

    def bytes_in(self, memory: str) -> int:
        """Bytes of arenas and states in a memory of the platform; 0 where there are none."""
        return sum(arena.num_bytes for arena in self.arenas if arena.inside == memory)

    @property
    def memories_bytes(self) -> dict[str, int]:
        """Bytes of arenas and states in each memory of the platform that holds any."""
        return {arena.inside: self.bytes_in(arena.inside) for arena in self.arenas}

    @property
    def places(self) -> dict[str, tuple[str, int]]:
        """Memory and offset of everything that has a place."""
        return {name: (place.memory, place.offset) for name, place in self.placements.items()}

    @property
    def state_bytes(self) -> int:
        """Bytes of the struct of states that are kept from run to run."""
        return sum(arena.num_bytes for arena in self.arenas if arena.memory == STATE_MEMORY)

    @property
    def arena_bytes(self) -> int:
        return sum(arena.num_bytes for arena in self.arenas)

    @property
    def lower_bound_bytes(self) -> int:
        return sum(arena.lower_bound_bytes for arena in self.arenas)


def peak_placements(plan: MemoryPlan, arena: Arena) -> list[Placement]:
    """Everything with bytes of its own that is alive in the step with the most live bytes, the largest first."""
    alive = [
        place
        for place in plan.placements.values()
        if place.memory == arena.memory and place.begin <= arena.peak_step < place.end and place.part_of is None
    ]
    return sorted(alive, key=lambda place: (-place.num_bytes, place.name))


def scratch_name(step_name: str) -> str:
    """Name under which a step's scratch stands in the plan."""
    return f"{step_name}_scratch"


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


def runs_backward(step: Step) -> KernelCall | None:
    """The call of a loop that only runs a kernel's rows from the last to the first; None for other steps."""
    call = step.body[0] if isinstance(step, Loop) and len(step.body) == 1 else None
    is_backward = isinstance(call, KernelCall) and call.rows is not None and call.rows.begin.step == -1
    return call if isinstance(call, KernelCall) and is_backward else None


def _undirected(step: Step) -> Step:
    """A loop that only runs a kernel's rows from the last to the first, as the call it stands for."""
    call = runs_backward(step)
    return replace(call, rows=None) if call else step
