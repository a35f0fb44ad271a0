"""Tile attention head-wise, and compute rows of each tile in series.

Rewrite: first as by `SplitHeads`, then as by `SplitSequences`.
Leaves alone: a function without attention whose heads can be split into that number of parts.
"""

from __future__ import annotations

import tvm

from relay_passes.backend import Backend
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.searched import Searched


@tvm.transform.module_pass(opt_level=0, name="SplitHeadsInRows")
class SplitHeadsInRows(SearchingPass):
    """Tile each attention head-wise, and cut the order of composites into sequences that run row by row."""

    def __init__(self, backend: Backend, budget_bytes: int, parts: int, known: Searched | None = None) -> None:
        super().__init__(backend, budget_bytes, known)
        self.parts = parts

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        cut = known.in_parts.get(self.parts)
        return SplitSequences(self.backend, self.budget_bytes, cut)(cut.mod) if cut else mod
