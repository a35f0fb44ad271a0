"""A platform: processors, memories, the links and signals between them, read from TOML and checked.

One platform a file: cores as QEMU has them in `tvm_ext/platforms/`, chips and boards in `tvm_ext/boards/`, or anywhere
of the user's. Units stand in the key names (`_bytes`, `_hz`, `_cycles`); counts are plain integers, `65536` or
`0x10000`, and bytes texts with a unit, too: `"64KiB"`, never `"64KB"` or `"64K"`.
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
    """One board or machine. `Platform.load("cortex_m4")` for a shipped one, a path for your own."""

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """Read a shipped platform by name or alias, or a TOML file by path. Raises BadPlatform.

        Of names, neither case nor `-` and `_` matter: `"nucleo-h743zi"`, `"STM32H743ZI"`, `"pico"`.
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
        """Names of the cores that come with tvm_ext as QEMU has them, and of this machine, sorted."""
        return core_names()

    @staticmethod
    def boards() -> list[str]:
        """Names of the chips and boards that come with tvm_ext, sorted; aliases are found as well."""
        return board_names()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`. Raises BadPlatform."""
        try:
            return cls._check(json.loads(text), "platform")
        except (ValueError, RecursionError) as error:
            raise BadPlatform(f"platform: is not JSON: {shortened(error)}.") from None

    def to_json(self) -> str:
        """The whole description as one JSON text; equal platforms give equal text."""
        return TypeAdapter(Platform).dump_json(self).decode()

    @classmethod
    def _read(cls, path: Path) -> Self:
        table = read_table(path, "platform", BadPlatform)
        try:
            return cls._check(table, str(path))
        except ValueError as error:  # of json: an integer too long to be written
            raise BadPlatform(f"{path}: is not TOML that can be read: {shortened(error)}.") from None

    @classmethod
    def _check(cls, table: dict[str, object], where: str) -> Self:
        try:
            platform = TypeAdapter(cls).validate_json(json.dumps(table))
        except TypeError:  # of json: TOML has four types more
            raise BadPlatform(f"{where}: holds a date or a time; no key of a platform is one.") from None
        except ValidationError as error:
            raise BadPlatform(f"{where}: {explained(error, _allowed)}") from None
        problem = contradiction(platform)
        if problem:
            raise BadPlatform(f"{where}: {problem}")
        return platform

    def memory(self, name: str) -> Memory:
        """The memory of that name. Raises KeyError."""
        return self._memories[name]

    @cached_property
    def on_machine(self) -> Self:
        """The platform with its memories where its QEMU machine has them, and as many bytes of them as that has.

        It is the platform itself where the machine is the board's own.
        """
        if self.board is None or not self.board.memories:
            return self
        return replace(self, memories=memories_of_machine(self, self.board))

    def link_between(self, source: str, target: str) -> Link | None:
        """The way for bytes from one end to the other, as the platform lists it; a DMA's before others."""
        return self._links.get((source, target))

    def reached_by(self, processor: str, memory: str) -> Link | None:
        """The link by which a processor reads and writes a memory; None where it does not reach it."""
        return self.link_between(processor, memory) or self.link_between(memory, processor)

    def near_memory(self, processor: Processor) -> str | None:
        """The ram to which tensors go for an accelerator that does not reach the default memory, or weights for one.

        Empty where it reaches the default memory, or is no accelerator; None where nothing gets to it: the first
        processor reaches no ram of the accelerator's, and no DMA leads there and back.
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
        """The way by which one core wakes another, as the platform lists it; None without."""
        return next((one for one in self.signals if (one.source, one.target) == (source, target)), None)

    @property
    def states(self) -> str:
        """The memory for what models keep from one run to the next: the first one that is retained, if there is any."""
        return next((memory.name for memory in self.memories if memory.retained), self.activations)

    @property
    def processor(self) -> Processor:
        """The processor that runs what nothing else claims: the first one."""
        return self.processors[0]

    def flags_of(self, processor: Processor) -> tuple[str, ...]:
        """Flags by which the C of a processor is compiled, but for speed or size."""
        return (*self.toolchain.flags, *processor.flags)

    def core_of(self, processor: Processor) -> str:
        """Name of the core that a processor's C is compiled for: of -mcpu; without it, the processor's isa."""
        named = [flag.removeprefix("-mcpu=") for flag in self.flags_of(processor) if flag.startswith("-mcpu=")]
        return named[-1].partition("+")[0] if named else processor.isa

    def toolchain_of(self, processor: Processor) -> Toolchain:
        """The compiler of a processor's C, with its flags."""
        return replace(self.toolchain, flags=self.flags_of(processor))

    def processor_named(self, name: str) -> Processor:
        """The processor of that name; the first one for an empty name. Raises KeyError."""
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
    """Keys of the table that a location is in."""
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
