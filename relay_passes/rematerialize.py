"""Computes results again instead of keeping them, where more bytes are alive than a budget allows.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b); e = c4(d, a)
      ->  a = c1(x); b = c2(a); d = c3(b); a.again = c1(x); e = c4(d, a.again)
    with the cheapest repeats found that keep live bytes within the budget. main says what they came to: attributes
    `rematerialized_operators`, `rematerialized_instructions` and `schedule_peak_bytes`. The function of a repeat
    carries `repeats`, the name of the function whose work it does again.
Leaves alone: a function within the budget; one that no repeats bring within it; what each composite computes.
Never let TVM's EliminateCommonSubexpr run after it: that undoes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.recompute_search import Recomputation, peak_bytes, recompute
from relay_passes.backend import Backend
from relay_passes.composites import call_new, composite_of
from relay_passes.dataflow import bindings, is_dataflow, live, operands, outputs, rebuild, substitute
from tvm_ext.core.names import unique

MOST_EXACT = 400
"""Operators up to which the constraint program is tried too, where ortools is installed."""


@tvm.transform.module_pass(opt_level=0, name="Rematerialize")
class Rematerialize:
    """See the module's docstring. The backend says what a composite costs and needs."""

    def __init__(self, backend: Backend, budget_bytes: int) -> None:
        self.backend, self.budget_bytes = backend, budget_bytes

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        operators = OperatorGraph(mod, main, self.backend)
        found = cheapest(operators, self.budget_bytes)
        if found is None or (not found.cost and len(found.sequence) == len(operators.steps)):
            return mod
        module = mod.clone()
        attributes = {
            "rematerialized_operators": len(found.sequence) - len(operators.steps),
            "rematerialized_instructions": found.cost,
            "schedule_peak_bytes": found.peak_bytes,
        }
        repeat_operators(module, operators, found.sequence, attributes)
        return module


def cheapest(operators: OperatorGraph, budget_bytes: int) -> Recomputation | None:
    """The cheapest sequence found within a budget; None if none is found."""
    graph, costs = operators.graph(), operators.instructions
    order = range(len(graph.nodes))
    if peak_bytes(graph, order) <= budget_bytes:
        return Recomputation(sequence=tuple(order), peak_bytes=peak_bytes(graph, order), cost=0, proved=True)
    found = [recompute(graph, order, costs, budget_bytes)]
    if len(order) <= MOST_EXACT and find_spec("ortools"):
        from relay_passes.analysis.recompute_exact import recompute_exactly

        found.append(recompute_exactly(graph, order, costs, budget_bytes, hint=found[0]))
    return min((result for result in found if result), key=lambda result: result.cost, default=None)


def repeat_operators(
    module: tvm.IRModule, operators: OperatorGraph, sequence: Sequence[int], attributes: Mapping[str, int]
) -> None:
    """Gives the module's main its operators in that sequence; a read takes what was computed last.

    A repeat is a call of a function of its own, so that it may be cut otherwise than the first run. What main returns
    is what was computed last, under its own name. Repeats that nothing reads are left out.
    """
    main = operators.main
    returned = {leaf for result in outputs(main) for leaf in operands(result)}
    taken = {binding.var.name for binding in bindings(main)} | {param.name for param in main.params}
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
                again = composite.with_attr("repeats", name)
                value = call_new(module, unique(f"{name}_again", functions), again, value.args, value.span)
            if left[index] if var in returned else index in ran:
                var = relax.DataflowVar(unique(f"{var.name}.again", taken), var.ty)
            latest[binding.var] = var
            bound.append(relax.VarBinding(var, value))
        ran.add(index)
    rebuilt = rebuild(main, live(bound, outputs(main)))
    module.update_func(module.get_global_var("main"), rebuilt.with_attrs(attributes))
