"""Computes results again, row by row where they are read, where no split alone comes within a budget.

Rewrite:
    a = c1(x); g = c2(a); d = c3(g); e = c4(d, a)
      ->  a = c1(x); g = c2(a); d = c3(g); a.again = c1_again(x); e = c4(d, a.again)
    with c1_again and c4 in one `sequence`: what is computed again is a ring of a few rows. Sequences are labelled as
    `SplitSequences` does; repeats, and what main says of them, are those of `Rematerialize`.
Leaves alone: a function that splits alone bring within the budget, or that nothing found does; what each composite
    computes.
Never let TVM's EliminateCommonSubexpr run after it: that undoes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from relay_passes.backend import Backend
from relay_passes.dataflow import is_dataflow
from relay_passes.memory.rematerialize import repeat_operators
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.searched import Searched, searched
from relay_passes.solvers.graph import Graph
from relay_passes.solvers.recompute.in_rows import recompute_in_rows
from relay_passes.solvers.split.search import Split, cut


@tvm.transform.module_pass(opt_level=0, name="RematerializeInRows")
class RematerializeInRows:
    """See the module's docstring. The backend says what a composite costs and needs.

    known: of the module, where it was searched before.
    """

    def __init__(self, backend: Backend, budget_bytes: int, known: Searched | None = None) -> None:
        self.backend, self.budget_bytes, self.known = backend, budget_bytes, known

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        known = searched(mod, self.backend, self.known)
        operators = known.operators

        def cut_of(_graph: Graph, sequence: Sequence[int]) -> Split:
            return cut(known.repeating(tuple(sequence)), self.budget_bytes)

        found = recompute_in_rows(known.graph, operators.instructions, self.budget_bytes, cut_of)
        if found is None or not found.cost:
            return mod
        module = mod.clone()
        attributes = {
            "rematerialized_operators": len(found.sequence) - len(operators.steps),
            "rematerialized_instructions": found.cost,
        }
        repeat_operators(module, operators, found.sequence, attributes)
        return SplitSequences(self.backend, self.budget_bytes)(module)
