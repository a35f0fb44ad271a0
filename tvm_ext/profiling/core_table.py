"""Tables of a core's cycles, in the files of `cores/`: cycles by class of instruction, and by pairs of classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.files.user_tables import read_table
from tvm_ext.core.platform import Platform
from tvm_ext.profiling.instructions import FirmwareInstruction, Kind
from tvm_ext.profiling.unit_queues import QueuedUnit, queued_cycles

_FOLDER = Path(__file__).parent / "cores"
_CONFIG = ConfigDict(extra="forbid")
Cycles = Annotated[float, Field(ge=-100, le=100)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Pair:
    """Cycles added to an instruction of a class in `then` if it follows an instruction of a class in `behind`.

    cycles: may be negative. when: `depends` if the instruction reads a register that the one before writes,
    `independent` if it does not.
    """

    behind: tuple[Kind, ...]
    then: tuple[Kind, ...]
    cycles: Cycles
    when: Literal["always", "depends", "independent"] = "always"


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class SharedUnit:
    """Classes of instructions of which at most `per_cycle` start in one cycle, because they share a unit."""

    kinds: tuple[Kind, ...]
    per_cycle: Annotated[int, Field(ge=1, le=8)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Issue:
    """In-order issue of several instructions in one cycle.

    width: most instructions of a cycle. units: what classes share. latency: cycles from the start of an instruction
    until others can read its result, if not 1; the table's pairs are added for classes that read earlier. accumulates:
    classes whose sum the next of them can take a cycle later. alone: classes that share their cycle with none. queues:
    units with queues of their own (unit_queues.py); `cycles` are then those in which an instruction stalls all others,
    0 if not stated, and the other members but `width` and `latency` are not used.
    """

    width: Annotated[int, Field(ge=2, le=8)]
    units: tuple[SharedUnit, ...] = ()
    latency: dict[Kind, Cycles] = field(default_factory=dict[Kind, float])
    accumulates: tuple[Kind, ...] = ()
    alone: tuple[Kind, ...] = ()
    queues: tuple[QueuedUnit, ...] = ()


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class CoreTable:
    """Cycles of a core's instructions.

    cpus: names of the core for `-mcpu`, or the `isa` of processors that are compiled for without -mcpu.
    source: the manual, or another source of the cycles. bound: effects that the estimate ignores. bus_bytes: largest
    number of data bytes in a cycle. cycles: of a class of instructions, if not 1. per_register: additional cycles for
    each register in a list or in a vector group. taken: additional cycles of a taken branch. loop: additional cycles at
    the end of a hardware loop that repeats. issue: of a core that starts several instructions in a cycle; `cycles` are
    then those in which an instruction keeps others from starting.
    """

    cpus: Annotated[tuple[str, ...], Field(min_length=1)]
    source: str
    bound: str
    bus_bytes: Annotated[int, Field(gt=0, le=64)]
    taken: Cycles
    loop: Cycles = 0.0
    cycles: dict[Kind, Cycles] = field(default_factory=dict[Kind, float])
    per_register: dict[Kind, Cycles] = field(default_factory=dict[Kind, float])
    pairs: tuple[Pair, ...] = ()
    issue: Issue | None = None

    def block_cycles(self, instructions: Sequence[FirmwareInstruction]) -> list[float]:
        """Return the cycles of each instruction of a basic block."""
        if self.issue and self.issue.queues:
            return queued_cycles(
                instructions, width=self.issue.width, units=self.issue.queues, latency=self.issue.latency,
                blocking=self.cycles,
            )  # fmt: skip
        if self.issue:
            return self._issued_cycles(self.issue, instructions)
        found: list[float] = []
        before: FirmwareInstruction | None = None
        for one in instructions:
            found.append(self._own(one) + (self._behind(before, one) if before else 0.0))
            before = one
        return found

    def _own(self, one: FirmwareInstruction) -> float:
        return self.cycles.get(one.kind, 1.0) + one.registers * self.per_register.get(one.kind, 0.0)

    def _issued_cycles(self, issue: Issue, instructions: Sequence[FirmwareInstruction]) -> list[float]:
        """Return the cycles that each instruction adds to the block: 0 for one that starts beside the one before.

        Nothing is known of the block before, so that its results are there at once. The last instruction has all its
        own cycles.
        """
        writers: dict[str, tuple[FirmwareInstruction, float]] = {}
        together: list[FirmwareInstruction] = []
        start, free, added = 0.0, 0.0, list[float]()

        def read(one: FirmwareInstruction) -> Iterable[tuple[FirmwareInstruction, float]]:
            return (writers[register] for register in one.reads & writers.keys())

        for one in instructions:
            ready = max((at + self._latency(issue, by, one) for by, at in read(one)), default=0.0)
            own = self._own(one)
            if not (together and ready <= start and _fits(issue, together, one)):
                start, together = max(free, ready, start), []
            together.append(one)
            end = max(free, start + own)
            added.append(end - free)
            free = end
            writers |= dict.fromkeys(one.writes, (one, start))
        return added

    def _latency(self, issue: Issue, writer: FirmwareInstruction, reader: FirmwareInstruction) -> float:
        """Return the cycles from the start of an instruction to that of one that reads its result."""
        sums = issue.accumulates
        if writer.kind in sums and reader.kind in sums and writer.writes & reader.writes:
            return 1.0
        return issue.latency.get(writer.kind, 1.0) + self._behind(writer, reader)

    def taken_cycles(self, last: FirmwareInstruction) -> float:
        """Return the additional cycles if the branch at the end of a block, `last`, is taken."""
        return self.loop if last.kind == "loop" else self.taken

    def _behind(self, before: FirmwareInstruction, one: FirmwareInstruction) -> float:
        """Return the cycles that all matching pairs add to `one` after `before`."""
        depends = bool(before.writes & one.reads)
        holds = {"always": True, "depends": depends, "independent": not depends}
        return sum(
            pair.cycles
            for pair in self.pairs
            if before.kind in pair.behind and one.kind in pair.then and holds[pair.when]
        )


def _fits(issue: Issue, together: Sequence[FirmwareInstruction], one: FirmwareInstruction) -> bool:
    """Return True if an instruction can start beside these."""
    if len(together) >= issue.width or any(each.kind in issue.alone for each in (*together, one)):
        return False
    kinds = [each.kind for each in together]
    return all(
        sum(kind in unit.kinds for kind in kinds) < unit.per_cycle for unit in issue.units if one.kind in unit.kinds
    )


def core_table(platform: Platform) -> CoreTable:
    """Return the table of the platform's core. Raises BadPlatform if there is none.

    The core is the processor's `core`, or else the one of -mcpu, or else the processor's isa: a compiler that does not
    know a core compiles for another one, whose cycles are not those of the core.
    """
    name, known = platform.processor.core or platform.core_of(platform.processor), core_tables()
    if name in known:
        return known[name]
    if name == platform.processor.isa:
        raise BadPlatform(
            f"platform {platform.name}: there is no table of cycles for {name}, and its compiler flags name no core; "
            f"add -mcpu= to them if its core has one. Cores with a table are {', '.join(known)}."
        )
    raise BadPlatform(
        f"platform {platform.name}: there is no table of cycles for {name}; cores with a table are {', '.join(known)}. "
        "Run the package in QEMU instead, which counts its instructions."
    )


@cache
def core_tables() -> Mapping[str, CoreTable]:
    """Return all tables by the name of the core."""
    adapter = TypeAdapter(CoreTable)
    tables = [adapter.validate_python(read_table(path, "core", BadPlatform)) for path in sorted(_FOLDER.glob("*.toml"))]
    return {cpu: table for table in tables for cpu in table.cpus}
