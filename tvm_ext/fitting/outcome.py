"""Outcome of a try to make a model fit: what it comes to, whatever the limit of the default memory is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Self

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import Compiled
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.fitting.next_try import Tried, Try


@dataclass(frozen=True, kw_only=True)
class TryOutcome:
    """Bytes of arenas by memory, none where a method's pass found nothing to change, and modelled instructions.

    is_held: all memories of the platform hold their arenas and weights. ports: memories beside the default one that
    inputs and outputs were placed in. rejected: objection of the validator to the plan, which then has no bytes.
    """

    num_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    instructions: int = 0
    is_held: bool = True
    ports: tuple[str, ...] = ()
    rejected: str | None = None

    @classmethod
    def of(cls, compiled: Compiled | None) -> Self:
        """The outcome of a compiled try that the validator has nothing against; None where nothing was found."""
        if compiled is None:
            return cls()
        plan, platform = compiled.plan, compiled.platform
        num_bytes = {memory.name: plan.bytes_in(memory.name) for memory in platform.memories if memory.kind == "ram"}
        try:
            check_capacity(compiled.program, plan, platform)
        except DoesNotFit:
            is_held = False
        else:
            is_held = True
        return cls(
            num_bytes=num_bytes, instructions=compiled.modelled_instructions, is_held=is_held,
            ports=ports_beside(compiled),
        )  # fmt: skip

    def to_json(self) -> str:
        """The outcome as text that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """The outcome that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "ports": tuple(values["ports"])})

    def within(self, one: Try, limits: Mapping[str, int], home: str) -> Tried:
        """The outcome of a try where memories may give these bytes. home: the default one, whose limit tells alone
        where the try has no other memory, but for those that ports are in."""
        if self.rejected is not None or not self.num_bytes:
            return Tried(one=one, rejected=self.rejected)
        others = [memory for memory in (self.ports if one.is_alone else limits) if memory != home]
        over = {memory: self.num_bytes[memory] - limits[memory] for memory in others}
        over = {memory: num_bytes for memory, num_bytes in over.items() if num_bytes > 0}
        return Tried(
            one=one, arena_bytes=self.num_bytes[home], instructions=self.instructions,
            fits=not over and self.is_held and self.num_bytes[home] <= limits[home],
            over_bytes=() if one.is_alone else tuple(over.items()),
        )  # fmt: skip


def ports_beside(compiled: Compiled) -> tuple[str, ...]:
    """Memories of the platform, but its default one, that a model's inputs and outputs lie in."""
    program, platform = compiled.program, compiled.platform
    found = dict.fromkeys(program.tensors[name].memory for name in (*program.inputs, *program.outputs))
    return tuple(
        memory.name for memory in platform.memories if memory.name in found and memory.name != platform.activations
    )
