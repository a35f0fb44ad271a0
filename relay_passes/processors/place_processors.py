"""Decides which processor runs each operator, and which layers several compute at once, for the least predicted time.

Rewrite:
    a = c1(x); b = c2(a); d = c3(a); e = c4(b, d)
      ->  a.rows_0_8 = c1_rows_0_8(x.rows_0_9)       c1 is cut: the halo is read by both, and no row made twice
          a.rows_8_16 = c1_rows_8_16(x.rows_7_16)    each carries `OperatorProcessor`, none for the first processor
          a = concat(a.rows_0_8, a.rows_8_16)        only where who reads it does not read the same rows
          b = c2(a); d = c3(a)                       that of c3 says cpu1: both run at once
          e = c4(b, d)
    in an order that all processors' lists are in. main carries the `ProcessorPlacement`, with figures of all this.
Leaves alone: modules for one processor; functions that something else than composites is part of, or that nothing may
run; sequences run row by row, which stay on one processor; what each composite computes: no bit of a result changes.
Never let TVM's EliminateCommonSubexpr run after it: it may join what two processors compute.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.composites import has_composites_only
from relay_passes.dataflow import is_dataflow, with_main
from relay_passes.processors.choose_processors import choose_processors, placement_report
from relay_passes.processors.routes import driving_of
from relay_passes.processors.shared_work import fast_memory_bytes, shared_work
from relay_passes.processors.write_placement import PlacementWriter
from tvm_ext.core.decisions.outcomes import SchedulePeak
from tvm_ext.core.decisions.processors import ProcessorPlacement
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.platform import Platform


@tvm.transform.module_pass(opt_level=0, name="PlaceProcessors")
class PlaceProcessors:
    """Places operators on processors, in whole or in rows. costs: of the processors to choose from, the first first.

    tight_bytes: what tensors may take where operators keep their order, and accelerators compute none that needs more.
    """

    def __init__(
        self,
        platform: Platform,
        costs: Sequence[ProcessorCosts],
        objective: Objective,
        grouping: Grouping,
        *,
        tight_bytes: int | None = None,
    ) -> None:
        self.platform, self.costs, self.objective, self.grouping = platform, costs, objective, grouping
        self.tight_bytes = tight_bytes

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if len(self.costs) < 2 or not is_dataflow(main) or not has_composites_only(mod):
            return mod
        operators = OperatorGraph(mod, main, self.costs[0].backend)
        work = shared_work(operators, self.costs, self.platform, self.objective, self.tight_bytes)
        if work is None:
            return mod
        fast_bytes, driving = fast_memory_bytes(self.platform), driving_of(self.costs)
        chosen = choose_processors(
            work, self.objective, self.grouping, fast_bytes, driving, in_order=self.tight_bytes is not None
        )
        if chosen is None:
            return mod
        module = mod.clone()
        names = ["", *(cost.processor.name for cost in self.costs[1:])]
        writer = PlacementWriter(module, operators, names, driving.accelerators if driving else ())
        for task in chosen.found.sequence:
            form = chosen.found.forms[task]
            if (task, form) in work.parts:
                writer.split(work.unit_of(task)[0], work.parts[task, form])
                continue
            for index in work.unit_of(task):
                writer.whole(index, work.problem.tasks[task].forms[form].parts[0].processor)
        report = placement_report(work, chosen, self.costs, self.objective, self.grouping, driving)
        placed = ProcessorPlacement(report=report).write(SchedulePeak().write(writer.function()))
        return with_main(module, placed)
