"""Result of planning, as plain data: a place for every tensor, and the size of each memory's arena."""

from __future__ import annotations

from dataclasses import dataclass

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
