"""Reorder composites so that the peak of live bytes is as low as possible.

Rewrite:
    a = c1(x); b = c2(x); d = c3(a); e = c4(b)   ->   a = c1(x); d = c3(a); b = c2(x); e = c4(b)
    where that lowers the peak. main carries the `SchedulePeak`.
Leaves alone: an order that no other order beats; the computation of each composite.
"""

from __future__ import annotations

import tvm

from relay_passes.dataflow import rebuild, with_main
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.searched import Searched
from relay_passes.solvers.schedule.search import least_schedule
from tvm_ext.core.decisions.models import SchedulePeak


@tvm.transform.module_pass(opt_level=0, name="ScheduleOperators")
class ScheduleOperators(SearchingPass):
    """Reorder composites for the lowest peak of live bytes, by the scratch and the sharing that the backend states."""

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        operators, found = known.operators, least_schedule(known.graph)
        ordered = [*operators.first, *(binding for index in found.order for binding in operators.steps[index])]
        peak = SchedulePeak(peak_bytes=found.peak_bytes, proved=found.proved)
        return with_main(mod, peak.write(rebuild(mod["main"], ordered)))
