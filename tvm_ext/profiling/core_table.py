"""Tables of cycles, one file of `cores/` for each core: what an instruction of each class takes, and after which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

_FOLDER = Path(__file__).parent / "cores"
_CONFIG = ConfigDict(extra="forbid")
Cycles = Annotated[float, Field(ge=-100, le=100)]


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class Pair:
    """Cycles that an instruction takes more, or less, behind one of the classes `behind`.

    when: `depends`: where it reads a register that the other one writes; `independent`: where it reads none.
    """

    behind: tuple[Kind, ...]
    then: tuple[Kind, ...]
    cycles: Cycles
    when: Literal["always", "depends", "independent"] = "always"


@dataclass(frozen=True, kw_only=True, config=_CONFIG)
class CoreTable:
    """Cycles of one core.

    cpus: names of the core as `-mcpu` has them, or the `isa` of processors that are compiled for without.
    source: the manual, or what stands in its place. bound: what the estimate leaves out. bus_bytes: bytes of data that
    a cycle moves at most. cycles: of a class, where it is not 1. per_register: cycles more for each register of a list,
    or of a group of vectors. taken: cycles more of a branch that is taken; loop: of the
    end of a hardware loop that goes on.
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

    def block_cycles(self, instructions: Sequence[FirmwareInstruction]) -> list[float]:
        """Cycles of each of the instructions of a block, which run one after the other."""
        found: list[float] = []
        before: FirmwareInstruction | None = None
        for one in instructions:
            own = self.cycles.get(one.kind, 1.0) + one.registers * self.per_register.get(one.kind, 0.0)
            found.append(own + (self._behind(before, one) if before else 0.0))
            before = one
        return found

    def taken_cycles(self, last: FirmwareInstruction) -> float:
        """Cycles more where a block that ends with `last` is left elsewhere than at its end."""
        return self.loop if last.kind == "loop" else self.taken

    def _behind(self, before: FirmwareInstruction, one: FirmwareInstruction) -> float:
        depends = bool(before.writes & one.reads)
        holds = {"always": True, "depends": depends, "independent": not depends}
        return sum(
            pair.cycles
            for pair in self.pairs
            if before.kind in pair.behind and one.kind in pair.then and holds[pair.when]
        )


def core_table(platform: Platform) -> CoreTable:
    """The table of the core that the platform compiles for, of its -mcpu or of its processor's isa.

    Raises BadPlatform where neither names one that has a table.
    """
    name, known = platform.core_of(platform.processor), core_tables()
    if name in known:
        return known[name]
    if name == platform.processor.isa:
        raise BadPlatform(
            f"platform {platform.name}: the flags of its compiler name no core; add -mcpu= to them. There are tables "
            f"of cycles for {', '.join(known)}."
        )
    raise BadPlatform(
        f"platform {platform.name}: there is no table of cycles for {name}; there are those of {', '.join(known)}. Run "
        "the package instead to count its instructions."
    )


@cache
def core_tables() -> Mapping[str, CoreTable]:
    """All tables by the name of the core."""
    adapter = TypeAdapter(CoreTable)
    tables = [adapter.validate_python(read_table(path, "core", BadPlatform)) for path in sorted(_FOLDER.glob("*.toml"))]
    return {cpu: table for table in tables for cpu in table.cpus}
