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
KernelMethod = tuple[str, Block]
"""A strategy: a kernel, and the block that it was given; an empty block is the kernel's own choice."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelMeasurements:
    """Measured costs of the strategies to compute an operator, in one unit for all strategies of an operator.

    methods: digest of an operator -> strategy -> its cost. Operators and strategies without an entry were not measured.
    """

    methods: Mapping[str, Mapping[KernelMethod, float]] = field(default_factory=dict[str, dict[KernelMethod, float]])

    def of(self, operator: Operator) -> Mapping[KernelMethod, float]:
        """Return the measured costs of an operator's strategies; empty if they were not measured."""
        nothing: Mapping[KernelMethod, float] = {}
        digest = operator_digest(operator) if self.methods else None
        return self.methods.get(digest, nothing) if digest else nothing

    def only(self, holds: Callable[[str, KernelMethod], bool]) -> KernelMeasurements:
        """Return the measurements for which `holds(digest, method)` is True."""
        return KernelMeasurements(
            methods={
                digest: {method: cost for method, cost in found.items() if holds(digest, method)}
                for digest, found in self.methods.items()
            }
        )

    @cached_property
    def text(self) -> str:
        """All measurements as JSON; equal measurements give equal text."""
        rows = {
            digest: sorted([*method, cost] for method, cost in found.items()) for digest, found in self.methods.items()
        }
        return json.dumps(rows, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the measurements that `text` wrote."""
        rows = json.loads(text).items()
        return cls(
            methods={digest: {(kernel, tuple(block)): cost for kernel, block, cost in row} for digest, row in rows}
        )


UNMEASURED = KernelMeasurements()
