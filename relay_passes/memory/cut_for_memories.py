"""Cut a model into sequences that run row by row, and recompute results, where fast memories then make it faster.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b); e = c4(d, a)
      ->  the same calls; c1, c2 and c3 carry a `RowSplit`, as `SplitSequences` writes it. Only some rows of a and b are
          stored, so that they fit a fast memory. Where recomputing `a` is faster than reading it from the default
          memory, c1_again stands ahead of c4, as `Rematerialize` writes it.
    main carries the `SplitCost`, the `SchedulePeak`, and the record of what is `Recomputed`. `AssignMemories` then
    chooses all memories.
Leaves alone: a module that is already cut or has streamed inputs; a module that no cut makes faster by 1 %, or for
    which no memory has a higher rate than the default memory; the computation of each composite.
Never let TVM's EliminateCommonSubexpr run after this pass, because it would undo the recomputation.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.backend import Backend
from relay_passes.composites import has_composites_only
from relay_passes.dataflow import with_main
from relay_passes.memory.memory_problem import has_higher_rate, near_memories, sequences_of, whole_problem
from relay_passes.memory.rematerialize import with_repeats
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.memory.split_sequences import cut_module
from relay_passes.searched import Searched
from relay_passes.solvers.memories.updates import Updates
from tvm_ext.core.decisions.models import Recomputed
from tvm_ext.core.time_model import TimeModel

LEAST_GAIN = 0.01
"""Fraction of the predicted time. A smaller gain is not worth the calls."""


@tvm.transform.module_pass(opt_level=0, name="CutForMemories")
class CutForMemories(SearchingPass):
    """Cut and recompute for the least predicted time in several memories.

    The arguments are those of `AssignMemories`.
    """

    def __init__(
        self,
        backend: Backend,
        time: TimeModel,
        limits: Mapping[str, int],
        known: Searched | None = None,
    ) -> None:
        super().__init__(backend, known=known)
        self.time, self.limits = time, limits

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        operators = known.operators
        near = near_memories(self.time, self.limits)
        if not any(has_higher_rate(self.time, memory) for memory in near) or not has_composites_only(mod):
            return mod
        if operators.reading or any(sequences_of(mod, operators)):
            return mod
        whole = whole_problem(known, self.backend, self.time, self.limits)
        found, before = Updates(whole, lambda sequence: known.repeating(sequence).few()).fastest()
        fits_better = found.score.overflow < before.score.overflow
        is_faster = found.score.cycles <= before.score.cycles * (1 - LEAST_GAIN)
        if not (fits_better or is_faster) or (found.sequence, found.cut) == (before.sequence, before.cut):
            return mod
        module, repeated = mod, len(found.sequence) - len(operators.steps)
        if repeated:
            module = with_repeats(mod, operators, found.sequence)
            again = sum(operators.instructions[index] for index in found.sequence) - sum(operators.instructions)
            module = with_main(module, Recomputed(operators=repeated, instructions=again).write(module["main"]))
            operators = OperatorGraph(module, module["main"], self.backend)
        return cut_module(module, operators, found.cut)
