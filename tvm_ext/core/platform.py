"""A platform: processors, memories, and the links between them, read from TOML and checked.

One board a file, in `tvm_ext/platforms/` or anywhere of the user's. Units stand in the key names
(`_bytes`, `_hz`, `_cycles`), counts are plain integers: `65536` or `0x10000`, never `"64KB"`.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tvm_ext.core.errors import BadPlatform
from tvm_ext.core.files.user_tables import Location, explained, read_table, shortened
from tvm_ext.core.section_names import section_problem, shared_sections

_ADDRESS_SPACE_BYTES = 1 << 32
_TIMER_BYTES = 16

STATE_MEMORY = "state"
"""Name, in programs and plans, of the struct that holds what a model keeps between runs: no memory has it."""

LINKED_MEMORY = "linked"
"""Name, there, of the struct that holds inputs which other models of a bundle write to; no memory has it either."""

NO_SIMD = "none"
"""`simd` of a processor on which plain C runs."""

_CONFIG = ConfigDict(extra="forbid", strict=True)

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Architecture = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$")]
Positive = Annotated[int, Field(gt=0, lt=1 << 48)]
Count = Annotated[int, Field(ge=0, lt=1 << 48)]
Rate = Annotated[float, Field(ge=1e-6, lt=1e6, strict=False)]
# Flags come from a file that is not ours: only code generation, optimisation, debug and plain defines.
_FLAG = r"^-(m[A-Za-z0-9=_.,+-]+|O[0-3sz]|g[0-3]?|f[a-z0-9-]+|D[A-Za-z_]\w*(=\w+)?)$"
Flag = Annotated[str, Field(pattern=_FLAG, max_length=200)]
Flags = Annotated[tuple[Flag, ...], Field(max_length=100)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Processor:
    """Something that runs kernels.

    `isa`: the architecture, by which a board finds its start-up code. `simd`: the target whose kernels it runs,
    `none` for plain C; the targets there are, are folders of `codegen_c/targets/` and installed packages.
    `fpu`: `none`, `single`, `double`; whether float arithmetic is done in hardware.
    """

    name: Name
    isa: Architecture
    clock_hz: Positive
    simd: Name = NO_SIMD
    fpu: Literal["none", "single", "double"] = "none"


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Memory:
    """A memory a processor reaches: `ram` holds tensors, `rom` holds code and weights.

    `section` is the linker section generated arrays go to, on the board; None leaves the choice to the linker
    (`.bss` for ram, `.rodata` for rom), and a build for the host has none. `address` is where a board has it, None
    where the system decides. `retained`: whether it keeps what it holds while the processor sleeps deeply; states of
    models go there.
    """

    name: Name
    kind: Literal["ram", "rom"]
    capacity_bytes: Positive
    read_bytes_per_cycle: Rate
    write_bytes_per_cycle: Annotated[float, Field(ge=0, lt=1e6, strict=False)]
    latency_cycles: Count = 0
    section: Annotated[str, Field(pattern=r"^\.[A-Za-z_][A-Za-z0-9_.]{0,62}$")] | None = None
    address: Count | None = None
    retained: bool = False


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Link:
    """A way for bytes: between a processor and a memory, or between two memories (`dma` says by itself)."""

    source: Name
    target: Name
    bytes_per_cycle: Rate
    latency_cycles: Count = 0
    dma: bool = False


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Toolchain:
    """Compiler of C for the platform: the prefix of its name, then flags for target and speed or size."""

    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$", max_length=100)] = ""
    flags: Flags = ()
    speed_flags: Flags = ("-O3",)
    size_flags: Flags = ("-Os",)


HOST_TOOLCHAIN = Toolchain(flags=("-march=native",))
"""Compiler of C for the machine at hand."""

QUICK_TOOLCHAIN = Toolchain(flags=HOST_TOOLCHAIN.flags, speed_flags=("-O1",))
"""The same for what runs a few times: it takes half as long to compile, and no bit depends on it."""


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Board:
    """A QEMU machine that stands in for the real board.

    `timer` names the counter that measures executed instructions, one of those that the start-up code has: of Arm's
    M-profile `cmsdk` (32 bits, counts down) and `system_counter` (64 bits, counts up). `stack_bytes` is the stack the
    firmware reserves.
    """

    qemu_machine: Annotated[str, Field(pattern=r"^[a-z0-9-]+$", max_length=100)]
    timer: Name
    timer_address: Count
    timer_hz: Positive
    code_memory: Name
    data_memory: Name
    stack_bytes: Positive = 16384


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Platform:
    """One board or machine. `Platform.load("cortex_m4")` for a shipped one, a path for your own.

    `activations` names the ram that holds tensors, `weights` the memory constants go to.
    """

    name: Name
    description: Annotated[str, Field(max_length=1000)]
    processors: Annotated[tuple[Processor, ...], Field(min_length=1, max_length=16, strict=False)]
    memories: Annotated[tuple[Memory, ...], Field(min_length=1, max_length=16, strict=False)]
    links: Annotated[tuple[Link, ...], Field(max_length=1024, strict=False)]
    activations: Name
    weights: Name
    toolchain: Toolchain
    board: Board | None = None

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """Read a shipped platform by name, or a TOML file by path. Raises BadPlatform."""
        text = str(name_or_path)
        if text.endswith(".toml") or "/" in text:
            return cls._read(Path(text))
        known = cls.shipped()
        if text not in known:
            near = get_close_matches(text, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadPlatform(
                f"unknown platform {text!r}.{hint} Shipped: {', '.join(known)}; "
                "or give the path of a .toml file of your own."
            )
        return cls._read(Path(str(files("tvm_ext") / "platforms" / f"{text}.toml")))

    @staticmethod
    def shipped() -> list[str]:
        """Names of the platforms that come with tvm_ext, sorted."""
        folder = files("tvm_ext") / "platforms"
        return sorted(item.name[:-5] for item in folder.iterdir() if item.name.endswith(".toml"))

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
        problem = platform._contradiction()
        if problem:
            raise BadPlatform(f"{where}: {problem}")
        return platform

    def memory(self, name: str) -> Memory:
        """The memory of that name. Raises KeyError."""
        return next(memory for memory in self.memories if memory.name == name)

    def link_between(self, source: str, target: str) -> Link | None:
        """The way for bytes from one end to the other, as the platform lists it; a DMA's before others."""
        found = [link for link in self.links if (link.source, link.target) == (source, target)]
        return next((link for link in found if link.dma), found[0] if found else None)

    def reached_by(self, processor: str, memory: str) -> Link | None:
        """The link by which a processor reads and writes a memory; None where it does not reach it."""
        return self.link_between(processor, memory) or self.link_between(memory, processor)

    @property
    def states(self) -> str:
        """The memory for what models keep from one run to the next: the first one that is retained, if there is any."""
        return next((memory.name for memory in self.memories if memory.retained), self.activations)

    @property
    def processor(self) -> Processor:
        """The processor that runs what nothing else claims: the first one."""
        return self.processors[0]

    def processor_named(self, name: str) -> Processor:
        """The processor of that name; the first one for an empty name. Raises KeyError."""
        found = {"": self.processor, **{processor.name: processor for processor in self.processors}}
        return found[name]

    def _contradiction(self) -> str | None:
        """Contradictions between values: names used twice or not at all, memories nobody reaches; None without."""
        names = [part.name for part in (*self.processors, *self.memories)]
        for taken in (STATE_MEMORY, LINKED_MEMORY):
            if taken in names:
                return f"name = {taken!r} is the name of what models keep between runs; choose another one."
        for name in names:
            if names.count(name) > 1:
                return f"name = {name!r} is used more than once; processors and memories need names of their own."
        for index, link in enumerate(self.links):
            for key, end in (("source", link.source), ("target", link.target)):
                if end not in names:
                    return f"links[{index}].{key} = {end!r} is neither a processor nor a memory: {', '.join(names)}."
        processors = {processor.name for processor in self.processors}
        for memory in self.memories:
            ends = [{link.source, link.target} for link in self.links]
            if not any(memory.name in end and end & processors for end in ends):
                return f"memories.{memory.name}: no processor reaches it; add a [[links]] table that joins the two."
        if problem := self._section_problem():
            return problem
        memories = {memory.name: memory for memory in self.memories}
        uses = [("activations", self.activations, "ram"), ("weights", self.weights, None)]
        if self.board:
            uses += [
                ("board.data_memory", self.board.data_memory, "ram"),
                ("board.code_memory", self.board.code_memory, "rom"),
            ]
        for key, name, kind in uses:
            if name not in memories:
                return f"{key} = {name!r} is not a memory: {', '.join(memories)}."
            if kind and memories[name].kind != kind:
                return f"{key} = {name!r} is a {memories[name].kind}; a {kind} is needed."
        for memory in self.memories:
            if memory.retained and memory.kind == "rom":
                return f"memories.{memory.name}.retained = true: a rom keeps what it holds anyway; a ram is needed."
            if memory.kind == "ram" and memory.write_bytes_per_cycle < 1e-6:
                return (
                    f"memories.{memory.name}.write_bytes_per_cycle = {memory.write_bytes_per_cycle:g}: at least 1e-6."
                )
        return self._board_contradiction(self.board) if self.board else None

    def _board_contradiction(self, board: Board) -> str | None:
        """Addresses that a 32-bit processor does not have, or two memories share; a stack that does not fit."""
        placed: list[tuple[int, int, str]] = []
        for memory in self.memories:
            if memory.address is None:
                return f"memories.{memory.name}: a board needs the address of each memory."
            placed.append((memory.address, memory.address + memory.capacity_bytes, f"memories.{memory.name}"))
        placed.append((board.timer_address, board.timer_address + _TIMER_BYTES, "board.timer_address"))
        placed.sort()
        for begin, end, what in placed:
            if end > _ADDRESS_SPACE_BYTES:
                return f"{what}: its bytes 0x{begin:x} to 0x{end - 1:x} lie beyond the 32 bits of an address."
        for (begin, end, one), (next_begin, _, other) in pairwise(placed):
            if next_begin < end:
                return f"{one} and {other}: both have the byte at 0x{next_begin:x}; one begins at 0x{begin:x}."
        data = self.memory(board.data_memory)
        if board.stack_bytes >= data.capacity_bytes:
            return f"board.stack_bytes = {board.stack_bytes}: does not fit into {data.name} of {data.capacity_bytes} B."
        return None

    def _section_problem(self) -> str | None:
        """A section that tools or start-up code use, or two memories in one section."""
        sections = {memory.name: memory.section for memory in self.memories if memory.section}
        for name, section in sections.items():
            reason = section_problem(section, self.memory(name).kind, holds_weights=name == self.weights)
            if reason:
                return f"memories.{name}.section = {section!r}: {reason}."
        if shared := shared_sections(list(sections.values())):
            return f"memories: sections {shared[0]!r} and {shared[1]!r}: a linker script can't tell them apart."
        return None


def _allowed(location: Location) -> list[str]:
    """Keys of the table that a location is in."""
    tables = {"processors": Processor, "memories": Memory, "links": Link, "toolchain": Toolchain, "board": Board}
    table = tables.get(str(location[0]), Platform) if len(location) > 1 else Platform
    return list(table.__dataclass_fields__)
