"""Recompute results row by row where they are read, where no split alone comes within a budget.

Rewrite:
    a = c1(x); g = c2(a); d = c3(g); e = c4(d, a)
      ->  a = c1(x); g = c2(a); d = c3(g); a.again = c1_again(x); e = c4(d, a.again)
    with c1_again and c4 in one `sequence`, so that only a ring of a few rows of the recomputed result is stored.
    Sequences are labelled as by `SplitSequences`. Repetitions and `Recomputed` of main are those of `Rematerialize`.
Leaves alone: a function that splits alone bring within the budget, or that no found sequence does; the computation
    of each composite.
Never let TVM's EliminateCommonSubexpr run after this pass, because it would undo the recomputation.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from relay_passes.dataflow import with_main
from relay_passes.memory.rematerialize import recomputed, with_repeats
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.searched import Searched
from relay_passes.solvers.graph import Graph
from relay_passes.solvers.recompute.in_rows import recompute_in_rows
from relay_passes.solvers.split.search import Split, cut


@tvm.transform.module_pass(opt_level=0, name="RematerializeInRows")
class RematerializeInRows(SearchingPass):
    """Recompute results inside the sequences that read them, where splits alone do not keep within the budget."""

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        assert self.budget_bytes is not None, "recomputing keeps to a budget"
        operators = known.operators

        def cut_of(_graph: Graph, sequence: Sequence[int]) -> Split:
            return cut(known.repeating(tuple(sequence)), self.budget_bytes)

        found = recompute_in_rows(known.graph, operators.instructions, self.budget_bytes, cut_of)
        if found is None or not found.cost:
            return mod
        module = with_repeats(mod, operators, found.sequence)
        module = with_main(module, recomputed(operators, found).write(module["main"]))
        return SplitSequences(self.backend, self.budget_bytes)(module)
