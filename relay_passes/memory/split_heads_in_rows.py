"""Runs attention a few heads after the other, and rows of what they compute in series.

Rewrite: that of `SplitHeads`, behind it that of `SplitSequences`.
Leaves alone: a function without attention whose heads can be told apart into so many parts.
"""

from __future__ import annotations

import tvm

from relay_passes.backend import Backend
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.searched import Searched


@tvm.transform.module_pass(opt_level=0, name="SplitHeadsInRows")
class SplitHeadsInRows(SearchingPass):
    """Cuts each attention into so many parts, and the order of composites into sequences that run row by row."""

    def __init__(self, backend: Backend, budget_bytes: int, parts: int, known: Searched | None = None) -> None:
        super().__init__(backend, budget_bytes, known)
        self.parts = parts

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        cut = known.in_parts.get(self.parts)
        return SplitSequences(self.backend, self.budget_bytes, cut)(cut.mod) if cut else mod
