"""Measurements of kernels, by operator, which `--tune` passes to the selection of kernels. Plain data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from codegen_c.operators.kinds import Operator
from codegen_c.operators.titles import operator_digest

Block = tuple[int, ...]
"""Sizes of the block in which a kernel works; the kernel defines their meaning: pixels, vectors of channels, rows."""
Way = tuple[str, Block]
"""A strategy: a kernel, and the block that it was given; an empty block is the kernel's own choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelFigures:
    """Measured costs of the strategies to compute an operator, in one unit for all strategies of an operator.

    ways: digest of an operator -> strategy -> its cost. Operators and strategies without an entry were not measured.
    """

    ways: Mapping[str, Mapping[Way, float]] = field(default_factory=dict[str, dict[Way, float]])

    def of(self, operator: Operator) -> Mapping[Way, float]:
        """Return the measured costs of an operator's strategies; empty if they were not measured."""
        nothing: Mapping[Way, float] = {}
        digest = operator_digest(operator) if self.ways else None
        return self.ways.get(digest, nothing) if digest else nothing

    def only(self, holds: Callable[[str, Way], bool]) -> KernelFigures:
        """Return the measurements for which `holds(digest, way)` is True."""
        return KernelFigures(
            ways={
                digest: {way: cost for way, cost in found.items() if holds(digest, way)}
                for digest, found in self.ways.items()
            }
        )

    @cached_property
    def text(self) -> str:
        """All measurements as JSON; equal measurements give equal text."""
        rows = {digest: sorted([*way, cost] for way, cost in found.items()) for digest, found in self.ways.items()}
        return json.dumps(rows, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the measurements that `text` wrote."""
        rows = json.loads(text).items()
        return cls(ways={digest: {(kernel, tuple(block)): cost for kernel, block, cost in row} for digest, row in rows})


UNMEASURED = KernelFigures()
