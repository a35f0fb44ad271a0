"""Cuts a model into sequences that run row by row, and repeats operators, where it is faster with near memories then.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b); e = c4(d, a)
      ->  the same calls; c1, c2 and c3 carry a `RowSplit`, as `SplitSequences` writes it: of a and b only some rows are
          kept, which a near memory has room for. Where it is faster to make `a` again than to read it from home,
          c1_again stands before c4, as `Rematerialize` writes it.
    main carries the `SplitCost`, the `SchedulePeak`, and what is `Recomputed`. `AssignMemories` then decides where
    everything lies.
Leaves alone: a module that is cut already, or has streamed inputs; one that no cut makes faster by a part in 100, or
    for which no memory has a higher rate than the default one; what each composite computes.
Never let TVM's EliminateCommonSubexpr run after it: that undoes it.
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
from relay_passes.solvers.memories.updates import Rates, Updates
from tvm_ext.core.decisions.models import Recomputed
from tvm_ext.core.time_model import TimeModel

LEAST_GAIN = 0.01
"""Part of the predicted time: a smaller gain is not worth the calls."""


@tvm.transform.module_pass(opt_level=0, name="CutForMemories")
class CutForMemories(SearchingPass):
    """Cuts and repeats for the least predicted time in several memories. The rest: as `AssignMemories` has it."""

    def __init__(
        self,
        backend: Backend,
        time: TimeModel,
        limits: Mapping[str, int],
        known: Searched | None = None,
        *,
        rates: Rates | None = None,
    ) -> None:
        super().__init__(backend, known=known)
        self.time, self.limits, self.rates = time, limits, rates

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        operators = known.operators
        near = near_memories(self.time, self.limits)
        if not any(has_higher_rate(self.time, memory) for memory in near) or not has_composites_only(mod):
            return mod
        if operators.reading or any(sequences_of(mod, operators)):
            return mod
        whole = whole_problem(known, self.backend, self.time, self.limits)
        found, before = Updates(whole, known.repeating, self.rates).fastest()
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
