"""Reorders composites so that the most bytes alive at a step are as few as can be.

Rewrite:
    a = c1(x); b = c2(x); d = c3(a); e = c4(b)   ->   a = c1(x); d = c3(a); b = c2(x); e = c4(b)
    where that lowers the peak. main says what is known: attributes `schedule_peak_bytes`, `schedule_proved`.
Leaves alone: an order that no other one beats; what each composite computes.
"""

from __future__ import annotations

import tvm

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.backend import Backend
from relay_passes.dataflow import is_dataflow, rebuild
from relay_passes.solvers.schedule.search import schedule


@tvm.transform.module_pass(opt_level=0, name="ScheduleOperators")
class ScheduleOperators:
    """See the module's docstring. The backend says what scratch a composite needs, and what it shares."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        problem = OperatorGraph(mod, main, self.backend)
        found = schedule(problem.graph())
        ordered = [*problem.first, *(binding for index in found.order for binding in problem.steps[index])]
        module = mod.clone()
        scheduled = rebuild(main, ordered).with_attrs(
            {"schedule_peak_bytes": found.peak_bytes, "schedule_proved": found.proved}
        )
        module.update_func(module.get_global_var("main"), scheduled)
        return module
