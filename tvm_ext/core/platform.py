"""A platform: processors, memories, and the links and signals between them, read from TOML and checked.

Each file describes a platform. `tvm_ext/platforms/` has cores as QEMU provides them, `tvm_ext/boards/` has chips and
boards, and users keep their own files anywhere. Key names contain units (`_bytes`, `_hz`, `_cycles`). Counts are plain
integers, `65536` or `0x10000`. Bytes may also be texts with a unit, `"64KiB"`, but never `"64KB"` or `"64K"`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.files.user_tables import Location, explained, read_table, shortened
from tvm_ext.core.platform_checks import contradiction, memories_of_machine
from tvm_ext.core.platform_parts import (
    CONFIG,
    HOST_TOOLCHAIN,
    LINKED_MEMORY,
    NO_SIMD,
    QUICK_TOOLCHAIN,
    STATE_MEMORY,
    Board,
    Link,
    MachineMemory,
    Memory,
    Offload,
    OffloadOperator,
    OperatorRate,
    PlatformTables,
    Processor,
    Signal,
    Toolchain,
    TvmBackend,
)
from tvm_ext.core.rich_display import bars_html, rows_html
from tvm_ext.core.shipped import board_names, core_names, platform_path

__all__ = [
    "HOST_TOOLCHAIN",
    "LINKED_MEMORY",
    "NO_SIMD",
    "QUICK_TOOLCHAIN",
    "STATE_MEMORY",
    "Board",
    "Link",
    "Memory",
    "Offload",
    "OffloadOperator",
    "Platform",
    "Processor",
    "Signal",
    "Toolchain",
]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Platform(PlatformTables):
    """A board or machine. `Platform.load("cortex_m4")` loads a shipped platform, a path loads your own."""

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """Load a shipped platform by name or alias, or a TOML file by path. Raises BadPlatform.

        Case, `-` and `_` are ignored in names: `"nucleo-h743zi"`, `"STM32H743ZI"`, `"pico"`.
        """
        return cls._read(platform_path(str(name_or_path)))

    def __repr__(self) -> str:
        memories = ", ".join(f"{one.name} {one.capacity_bytes:,} B" for one in self.memories)
        return f"<Platform {self.name}: {', '.join(one.isa for one in self.processors)}; {memories}>"

    def _repr_html_(self) -> str:
        cores = [(one.name, one.kind, one.isa, one.simd, one.fpu, one.clock_hz / 1e6) for one in self.processors]
        memories = [
            (one.name, one.kind, one.capacity_bytes, None if one.address is None else f"0x{one.address:08x}",
             one.read_bytes_per_cycle, one.latency_cycles)
            for one in self.memories
        ]  # fmt: skip
        sizes = [(one.name, float(one.capacity_bytes), f"{one.capacity_bytes:,} B {one.kind}") for one in self.memories]
        return (
            rows_html(self.name, ("processor", "kind", "isa", "simd", "fpu", "MHz"), cores)
            + rows_html("memories", ("memory", "kind", "B", "address", "B/cycle", "latency"), memories)
            + bars_html("memories", sizes)
        )

    @staticmethod
    def shipped() -> list[str]:
        """Return the names of the shipped cores, as QEMU provides them, and of this machine, sorted."""
        return core_names()

    @staticmethod
    def boards() -> list[str]:
        """Return the names of the shipped chips and boards, sorted. `load` also finds aliases."""
        return board_names()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`. Raises BadPlatform."""
        try:
            return cls._check(json.loads(text), "platform")
        except (ValueError, RecursionError) as error:
            raise BadPlatform(f"platform: not valid JSON: {shortened(error)}.") from None

    def to_json(self) -> str:
        """Return the whole description as a JSON text. Equal platforms give equal text."""
        return TypeAdapter(Platform).dump_json(self).decode()

    @classmethod
    def _read(cls, path: Path) -> Self:
        table = read_table(path, "platform", BadPlatform)
        try:
            return cls._check(table, str(path))
        except ValueError as error:  # an integer is too long for json to write
            raise BadPlatform(f"{path}: is not valid TOML: {shortened(error)}.") from None

    @classmethod
    def _check(cls, table: dict[str, object], where: str) -> Self:
        try:
            platform = TypeAdapter(cls).validate_json(json.dumps(table))
        except TypeError:  # TOML has four types that json lacks
            raise BadPlatform(
                f"{where}: holds a date or a time, which no key of a platform takes; remove it."
            ) from None
        except ValidationError as error:
            raise BadPlatform(f"{where}: {explained(error, _allowed)}") from None
        problem = contradiction(platform)
        if problem:
            raise BadPlatform(f"{where}: {problem}")
        return platform

    def memory(self, name: str) -> Memory:
        """Return the memory of that name. Raises KeyError."""
        return self._memories[name]

    @cached_property
    def on_machine(self) -> Self:
        """The platform with its memories at the addresses, and of the sizes, of its QEMU machine.

        It is the platform itself where the machine models the board exactly.
        """
        if self.board is None or not self.board.memories:
            return self
        return replace(self, memories=memories_of_machine(self, self.board))

    def link_between(self, source: str, target: str) -> Link | None:
        """Return the link from one end to the other, a DMA's link ahead of others, or None."""
        return self._links.get((source, target))

    def reached_by(self, processor: str, memory: str) -> Link | None:
        """Return the link by which a processor accesses a memory, or None where it does not reach the memory."""
        return self.link_between(processor, memory) or self.link_between(memory, processor)

    def near_memory(self, processor: Processor) -> str | None:
        """Return the RAM for the tensors of an accelerator that does not reach the default memory.

        Empty where it reaches the default memory, or is not an accelerator. None where nothing connects the two: the
        first processor reaches none of the accelerator's RAM, and no DMA leads there and back.
        """
        if processor.kind != "offload" or self.reached_by(processor.name, self.activations):
            return ""
        for memory in self.memories:
            ways = [self.link_between(self.activations, memory.name), self.link_between(memory.name, self.activations)]
            copies = self.reached_by(self.processor.name, memory.name) is not None
            if memory.kind == "ram" and self.reached_by(processor.name, memory.name) and (copies or all(ways)):
                return memory.name
        return None

    def signal_between(self, source: str, target: str) -> Signal | None:
        """Return the signal by which one core wakes another, or None."""
        return next((one for one in self.signals if (one.source, one.target) == (source, target)), None)

    @property
    def states(self) -> str:
        """The memory for states: the first retained memory, or the default memory without one."""
        return next((memory.name for memory in self.memories if memory.retained), self.activations)

    @property
    def processor(self) -> Processor:
        """The first processor, which runs everything that no other processor runs."""
        return self.processors[0]

    def flags_of(self, processor: Processor) -> tuple[str, ...]:
        """Return the compiler flags for the C code of a processor, without those for speed or size.

        A machine flag with a value, such as -mcpu=cortex-m33, replaces the toolchain's flag of that name: GCC compiles
        for the last one of two, but does not find the C library for them when it links.
        """
        own = {flag.partition("=")[0] for flag in processor.flags if flag.startswith("-m") and "=" in flag}
        return (*(flag for flag in self.toolchain.flags if flag.partition("=")[0] not in own), *processor.flags)

    def core_of(self, processor: Processor) -> str:
        """Return the core for which a processor's C code is compiled, from -mcpu, or else the processor's isa."""
        named = [flag.removeprefix("-mcpu=") for flag in self.flags_of(processor) if flag.startswith("-mcpu=")]
        return named[-1].partition("+")[0] if named else processor.isa

    def toolchain_of(self, processor: Processor) -> Toolchain:
        """Return the toolchain for a processor's C code, with its flags."""
        return replace(self.toolchain, flags=self.flags_of(processor))

    def processor_named(self, name: str) -> Processor:
        """Return the processor of that name, or the first processor for an empty name. Raises KeyError."""
        return self._processors[name]

    @cached_property
    def _memories(self) -> dict[str, Memory]:
        return {memory.name: memory for memory in self.memories}

    @cached_property
    def _links(self) -> dict[tuple[str, str], Link]:
        last_first = sorted(reversed(self.links), key=lambda link: link.dma)
        return {(link.source, link.target): link for link in last_first}

    @cached_property
    def _processors(self) -> dict[str, Processor]:
        return {"": self.processor, **{processor.name: processor for processor in self.processors}}


def _allowed(location: Location) -> list[str]:
    """Return the keys of the table that contains a location."""
    tables = {
        "processors": Processor, "memories": Memory, "links": Link, "signals": Signal, "toolchain": Toolchain,
        "board": Board,
    }  # fmt: skip
    table = tables.get(str(location[0]), Platform) if len(location) > 1 else Platform
    if table is Board and len(location) > 2 and location[1] == "memories":
        table = MachineMemory
    if table is Processor and "offload" in location[:-1]:
        table = OffloadOperator if "operators" in location[:-1] else Offload
    if table is Processor and "tvm" in location[:-1]:
        table = OperatorRate if "rates" in location[:-1] else TvmBackend
    return list(table.__dataclass_fields__)
