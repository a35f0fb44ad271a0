"""BuildOptions: one frozen value behind `build()`, `relax_pipeline()` and the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.names import hides_header

Optimize = Literal["speed", "size"]
Io = Literal["arena", "caller"]
Target = Literal["host", "qemu"]


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What a build may decide.

    optimize: `speed` or `size`; chooses compiler flags and kernel variants.
    io: `arena` keeps inputs and outputs in the planned arena, `caller` takes pointers at each run.
    verify: where the package is run and compared; None means the host, and QEMU where the platform
        has a board and QEMU is installed. An empty tuple verifies nothing, and the package says so.
    name: C prefix of everything generated; None derives it from the model file's name.
    """

    optimize: Optimize = "speed"
    io: Io = "arena"
    verify: tuple[Target, ...] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for key, allowed in (("optimize", ("speed", "size")), ("io", ("arena", "caller"))):
            if getattr(self, key) not in allowed:
                raise BadOptions(f"{key} = {getattr(self, key)!r}: allowed are {', '.join(allowed)}.")
        for target in self.verify or ():
            if target not in ("host", "qemu"):
                raise BadOptions(f"verify = {target!r}: allowed are host, qemu, or nothing at all.")
        if self.name is not None and not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", self.name):
            raise BadOptions(
                f"name = {self.name!r}: it prefixes C identifiers; use lower case letters, digits "
                "and underscores, a letter first, at most 48 characters."
            )
        if self.name is not None and hides_header(self.name):
            raise BadOptions(f"name = {self.name!r}: {self.name}.h would hide another header; choose another name.")
