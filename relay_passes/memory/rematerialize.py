"""Recompute results instead of keeping them, where more bytes are live than a budget allows.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b); e = c4(d, a)
      ->  a = c1(x); b = c2(a); d = c3(b); a.again = c1(x); e = c4(d, a.again)
    with the cheapest recomputations found that keep live bytes within the budget. The order changes too where that
    saves recomputations.
    main carries the record of what is `Recomputed`, and the `SchedulePeak`.
Leaves alone: a function within the budget; a function that no recomputation brings within the budget; the
computation of each composite.
Never let TVM's EliminateCommonSubexpr run after this pass, because it would undo the recomputation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.composites import call_new, composite_of
from relay_passes.dataflow import live, names_in, outputs, rebuild, returned, substitute, with_main
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.searched import Searched
from relay_passes.solvers.recompute.recomputation import Recomputation
from relay_passes.solvers.recompute.search import recompute
from tvm_ext.core.decisions.composites import ModelTensor
from tvm_ext.core.decisions.models import Recomputed, SchedulePeak
from tvm_ext.core.names import unique


@tvm.transform.module_pass(opt_level=0, name="Rematerialize")
class Rematerialize(SearchingPass):
    """Recompute results where that keeps live bytes within the budget, by the cheapest recomputations found."""

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        assert self.budget_bytes is not None, "recomputing keeps to a budget"
        operators, order = known.operators, range(len(known.operators.steps))
        found = recompute(known.graph, order, operators.instructions, self.budget_bytes)
        if found is None or found.sequence == tuple(order):
            return mod
        module = with_repeats(mod, operators, found.sequence)
        peak = replace(SchedulePeak.read(mod["main"]), peak_bytes=found.peak_bytes)
        return with_main(module, peak.write(recomputed(operators, found).write(module["main"])))


def recomputed(operators: OperatorGraph, found: Recomputation) -> Recomputed:
    """Return the outcome as main carries it."""
    repeats = len(found.sequence) - len(operators.steps)
    return Recomputed(operators=repeats, instructions=found.cost, at_least=found.at_least or None)


def with_repeats(mod: tvm.IRModule, operators: OperatorGraph, sequence: Sequence[int]) -> tvm.IRModule:
    """Return the module whose main runs its operators in that sequence.

    A read takes the result that was computed last. A repeated operator is a call of its own function, so that it may be
    cut differently from the first run. Results of main are the last computed values, under their own names. Repetitions
    without readers are left out.
    """
    main, module = operators.main, mod.clone()
    kept, taken = returned(main), names_in(main)
    functions = {var.name_hint for var in module.get_global_vars()}
    left = Counter(sequence)
    latest: dict[relax.Var, relax.Expr] = {}
    ran: set[int] = set()
    bound = list(operators.first)
    for index in sequence:
        left[index] -= 1
        for binding in operators.steps[index]:
            value, var = substitute(binding.value, latest), binding.var
            composite = composite_of(module, value) if index in ran else None
            if composite is not None:
                name = value.op.name_hint
                again = ModelTensor().write(composite)
                value = call_new(module, unique(f"{name}_again", functions), again, value.args, value.span)
            if left[index] if var in kept else index in ran:
                var = relax.DataflowVar(unique(f"{var.name}.again", taken), var.ty)
            latest[binding.var] = var
            bound.append(relax.VarBinding(var, value))
        ran.add(index)
    return with_main(module, rebuild(main, live(bound, outputs(main))))
