"""Measured figures of kernels, by operator: what `--tune` hands to whoever chooses kernels. Plain data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from codegen_c.operators.kinds import Operator
from codegen_c.operators.titles import operator_digest

Block = tuple[int, ...]
"""Sizes of the block in which a kernel works, by its own meaning: pixels, vectors of channels, rows."""
Way = tuple[str, Block]
"""A kernel, and the block that it was given; an empty one is the kernel's own choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelFigures:
    """Cost of ways to compute an operator, in one unit for all ways of an operator.

    ways: digest of an operator -> way -> its cost. Operators and ways without an entry were not measured.
    """

    ways: Mapping[str, Mapping[Way, float]] = field(default_factory=dict[str, dict[Way, float]])

    def of(self, operator: Operator) -> Mapping[Way, float]:
        """Figures of an operator's ways; none where nobody measured them."""
        nothing: Mapping[Way, float] = {}
        digest = operator_digest(operator) if self.ways else None
        return self.ways.get(digest, nothing) if digest else nothing

    def only(self, holds: Callable[[str, Way], bool]) -> KernelFigures:
        """Figures of the ways for which `holds(digest, way)`."""
        return KernelFigures(
            ways={
                digest: {way: cost for way, cost in found.items() if holds(digest, way)}
                for digest, found in self.ways.items()
            }
        )

    @cached_property
    def text(self) -> str:
        """All of it as JSON; equal figures give equal text."""
        rows = {digest: sorted([*way, cost] for way, cost in found.items()) for digest, found in self.ways.items()}
        return json.dumps(rows, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `text`."""
        rows = json.loads(text).items()
        return cls(ways={digest: {(kernel, tuple(block)): cost for kernel, block, cost in row} for digest, row in rows})


UNMEASURED = KernelFigures()
