"""Cycles of a core that starts instructions in order and hands some of them to queues before units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from tvm_ext.profiling.instructions import FirmwareInstruction, Kind

_CONFIG = ConfigDict(extra="forbid")
Busy = Annotated[float, Field(ge=0, le=100)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class QueuedUnit:
    """A unit that executes its instructions in order, from a queue.

    cycles, per_register: cycles for which an instruction of a class keeps the unit busy, and further cycles for each
    register of its vector group. The classes of both are those of the unit; an instruction may need several units, and
    begins when all of them are free. depth: instructions that wait in the queue before it keeps others from starting.
    """

    cycles: dict[Kind, Busy] = field(default_factory=dict[Kind, float])
    per_register: dict[Kind, Busy] = field(default_factory=dict[Kind, float])
    depth: Annotated[int, Field(ge=1, le=64)]

    def takes(self, one: FirmwareInstruction) -> bool:
        """Return True if the unit executes this instruction."""
        return one.kind in self.cycles or one.kind in self.per_register

    def busy_cycles(self, one: FirmwareInstruction) -> float:
        """Return the cycles for which the instruction keeps the unit busy."""
        return self.cycles.get(one.kind, 0.0) + one.registers * self.per_register.get(one.kind, 0.0)


def queued_cycles(
    instructions: Sequence[FirmwareInstruction],
    *,
    width: int,
    units: Sequence[QueuedUnit],
    latency: Mapping[Kind, float],
    blocking: Mapping[Kind, float],
) -> list[float]:
    """Return the cycles that each instruction adds to a basic block.

    width: instructions that leave the front of the core in one cycle, in order. Each waits there for the scalar
    registers that it reads, and for space in the queues of its units; vector registers it awaits in the queue. latency:
    cycles from the begin of an instruction in its units until others can read its result, 1 by default; the other
    registers of a group follow one by one, and an instruction that reads the group works on each when it is there.
    blocking: cycles for which a class keeps all others from starting.

    A block takes the longer of two times: until its last instruction has left the front, and that of its busiest unit.
    The second is the time of a loop whose queues never run empty. Results of the block before are there at once.
    """
    written: dict[str, float] = {}
    whole: dict[str, float] = {}
    begun: dict[int, list[float]] = defaultdict(list)
    free: dict[int, float] = defaultdict(float)
    busy: dict[int, float] = defaultdict(float)
    at, in_cycle, added = 0.0, 0, list[float]()
    for one in instructions:
        own = [number for number, unit in enumerate(units) if unit.takes(one)]
        ready = max((written.get(register, 0.0) for register in one.reads if not _is_vector(register)), default=0.0)
        space = max((_space(begun[number], units[number].depth) for number in own), default=0.0)
        left = max(at, ready, space)
        if left > at or in_cycle >= width:
            left, in_cycle = (left if left > at else at + 1.0), 0
        in_cycle += 1
        spent = max((units[number].busy_cycles(one) for number in own), default=0.0)
        awaited = (max(written[name], whole[name] - spent) for name in one.reads & whole.keys() if own)
        begin = max(left, *awaited, *(free[number] for number in own), 0.0)
        for number in own:
            begun[number].append(begin)
            free[number] = begin + units[number].busy_cycles(one)
            busy[number] += units[number].busy_cycles(one)
        ready_at = begin + latency.get(one.kind, 1.0)
        written |= dict.fromkeys(one.writes, ready_at)
        whole |= dict.fromkeys(filter(_is_vector, one.writes), ready_at + spent)
        stall = blocking.get(one.kind, 0.0)
        added.append(left + stall - at)
        at = left + stall
    if added:
        added[-1] += max(1.0, max(busy.values(), default=0.0) - at)
    return added


def _is_vector(register: str) -> bool:
    return register.startswith("v")


def _space(begun: Sequence[float], depth: int) -> float:
    """Return the time at which a queue has space: when the instruction that is `depth` places ahead begins."""
    return begun[-depth] if len(begun) >= depth else 0.0
