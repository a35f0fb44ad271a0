"""Intermediates in the parts of states that runs do not keep.

A window that moves up holds its newest rows only from the step that writes them to the one that moves it; before and
behind, other tensors of the same memory may lie there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from codegen_c.arena.lifetimes import extents
from codegen_c.program.program import Program, parts_of
from codegen_c.program.tensors import Tensor
from tvm_ext.core.alignment import STATE_ALIGNMENT_BYTES
from tvm_ext.core.platform import STATE_MEMORY


@dataclass(kw_only=True)
class _Room:
    """Bytes of a state that do not matter at some steps, and how many of them guests take at each."""

    num_bytes: int
    is_free: list[bool]
    taken: list[int] = field(default_factory=list[int])

    def admits(self, begin: int, end: int, num_bytes: int) -> bool:
        """True if there is room at steps [begin, end)."""
        return all(self.is_free[i] and self.taken[i] + num_bytes <= self.num_bytes for i in range(begin, end))

    def take(self, begin: int, end: int, num_bytes: int) -> None:
        for index in range(begin, end):
            self.taken[index] += num_bytes


def with_guests(program: Program, alive: Mapping[str, tuple[int, int]], stay: Collection[str]) -> Program:
    """The program with as many bytes of intermediates as find room among its states, the largest tensors first.

    alive: steps during which tensors that have a place matter. stay: tensors that are left where they are.
    """
    rooms = _rooms(program)
    if not rooms:
        return program
    wholes = parts_of(program)
    candidates = [
        tensor
        for name in alive
        if _may_move(tensor := program.tensors[name], program) and name not in stay and name not in wholes
    ]
    guests: dict[str, Tensor] = {}
    for tensor in sorted(candidates, key=lambda tensor: -tensor.num_bytes):
        begin, end = alive[tensor.name]
        num_bytes = -(-tensor.num_bytes // STATE_ALIGNMENT_BYTES) * STATE_ALIGNMENT_BYTES
        room = next((room for room in rooms if room.admits(begin, end, num_bytes)), None)
        if room:
            room.take(begin, end, num_bytes)
            guests[tensor.name] = replace(tensor, memory=STATE_MEMORY)
    return replace(program, tensors={**program.tensors, **guests})


def _rooms(program: Program) -> list[_Room]:
    """The smallest first, so that what is large stays for what is large."""
    needed, num_steps = extents(program), len(program.steps)
    rooms: list[_Room] = []
    for state in program.states:
        num_bytes = program.tensors[state.tensor].num_bytes
        kept = program.kept_bytes(state)
        if kept < num_bytes:
            is_free = [high <= kept for _, high in needed[state.tensor]]
            rooms.append(_Room(num_bytes=num_bytes - kept, is_free=is_free, taken=[0] * num_steps))
    return sorted(rooms, key=lambda room: room.num_bytes)


def _may_move(tensor: Tensor, program: Program) -> bool:
    alone = tensor.part is None and tensor.ring is None
    return alone and tensor.role == "intermediate" and tensor.memory == program.state_home
