"""Computes results again instead of keeping them, where more bytes are alive than a budget allows.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b); e = c4(d, a)
      ->  a = c1(x); b = c2(a); d = c3(b); a.again = c1(x); e = c4(d, a.again)
    with the cheapest repeats found that keep live bytes within the budget, and the order changed where fewer do then.
    main carries what is `Recomputed` and the `SchedulePeak`.
Leaves alone: a function within the budget; one that no repeats bring within it; what each composite computes.
Never let TVM's EliminateCommonSubexpr run after it: that undoes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.backend import Backend
from relay_passes.composites import call_new, composite_of
from relay_passes.dataflow import bindings, live, operands, outputs, rebuild, substitute, with_main
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.searched import Searched
from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.annealing import anneal_repeats
from relay_passes.solvers.recompute.local import improve_locally
from relay_passes.solvers.recompute.reordering import reordered
from relay_passes.solvers.recompute.search import Rank, Recomputation, recompute
from tvm_ext.core.decisions.composites import ModelTensor
from tvm_ext.core.decisions.models import Recomputed, SchedulePeak
from tvm_ext.core.names import unique

MOST_EXACT = 160
"""Operators up to which one constraint program is tried, where ortools is installed; beyond, windows of it are."""
MOST_IN_PLACES = 2000
"""Operators up to which the least cost is bounded by bytes at some places of the order, where ortools is installed."""
MOST_IN_INTERVALS = 400
"""Operators up to which such windows improve what was found; beyond, they take long for little."""


@tvm.transform.module_pass(opt_level=0, name="Rematerialize")
class Rematerialize(SearchingPass):
    """Runs operators again where that keeps live bytes within the budget, the cheapest ones found.

    rank: of a guide; the plan it leads to is taken where it costs less than the one found without it.
    """

    def __init__(
        self, backend: Backend, budget_bytes: int, known: Searched | None = None, *, rank: Rank | None = None
    ) -> None:
        super().__init__(backend, budget_bytes, known)
        self.rank = rank

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        assert self.budget_bytes is not None, "recomputing keeps to a budget"
        operators, order = known.operators, range(len(known.operators.steps))
        found = cheapest(known.graph, order, operators.instructions, self.budget_bytes, rank=self.rank)
        found = reordered(known.graph, order, operators.instructions, self.budget_bytes, found)
        if found is None or found.sequence == tuple(order):
            return mod
        module = with_repeats(mod, operators, found.sequence)
        peak = replace(SchedulePeak.read(mod["main"]), peak_bytes=found.peak_bytes)
        return with_main(module, peak.write(recomputed(operators, found).write(module["main"])))


def recomputed(operators: OperatorGraph, found: Recomputation) -> Recomputed:
    """The outcome as main carries it."""
    repeats = len(found.sequence) - len(operators.steps)
    return Recomputed(operators=repeats, instructions=found.cost, at_least=found.at_least or None)


def cheapest(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int, *, rank: Rank | None = None
) -> Recomputation | None:
    """The cheapest sequence found within a budget that keeps an order of first runs; None if none is found.

    Never dearer than without a guide, whose plan is one of those that are compared.
    """
    if peak_bytes(graph, order) <= budget_bytes:
        return Recomputation(sequence=tuple(order), peak_bytes=peak_bytes(graph, order), cost=0, proved=True)
    has_solver = find_spec("ortools") is not None
    is_small = len(order) <= MOST_EXACT
    found = _searched(graph, order, costs, budget_bytes, rank) if is_small else None
    nearest, at_least = tuple[int, ...](), 0
    if has_solver and len(order) <= MOST_IN_PLACES:
        from relay_passes.solvers.recompute.at_places import bound_at_places

        bounded = bound_at_places(graph, order, costs, budget_bytes, found)
        if bounded.at_least is None:
            return None
        found, nearest, at_least = bounded.plan, bounded.nearest, bounded.at_least
    if is_small and has_solver and not _is_least(found, at_least):
        from relay_passes.solvers.recompute.exact import recompute_exactly

        found = _cheaper(recompute_exactly(graph, order, costs, budget_bytes, hint=found), found)
    if not _is_least(found, at_least):
        annealed = anneal_repeats(graph, order, costs, budget_bytes, nearest)
        if annealed is None:
            found = found if is_small else _searched(graph, order, costs, budget_bytes, rank)
            annealed = found and improve_locally(graph, costs, budget_bytes, found, rank=rank)
        found = _cheaper(found, annealed)
    if found is not None and has_solver and not _is_least(found, at_least):
        from relay_passes.solvers.recompute.intervals import improve_in_intervals
        from relay_passes.solvers.recompute.neighbours import improve_neighbours

        if len(order) <= MOST_IN_INTERVALS:
            found = improve_in_intervals(graph, order, costs, budget_bytes, found)
        found = improve_neighbours(graph, costs, budget_bytes, found)
    return found and replace(found, proved=_is_least(found, at_least), at_least=at_least)


def _is_least(found: Recomputation | None, at_least: int) -> bool:
    return found is not None and (found.proved or found.cost <= at_least)


def _searched(
    graph: Graph, order: Sequence[int], costs: Sequence[int], budget_bytes: int, rank: Rank | None
) -> Recomputation | None:
    """The cheaper of what the search for one repeat after the other comes to, with a guide and without."""
    ranks = (None, rank) if rank else (None,)
    return _cheaper(*(recompute(graph, order, costs, budget_bytes, rank=own) for own in ranks))


def _cheaper(*results: Recomputation | None) -> Recomputation | None:
    return min((result for result in results if result), key=lambda result: result.cost, default=None)


def with_repeats(mod: tvm.IRModule, operators: OperatorGraph, sequence: Sequence[int]) -> tvm.IRModule:
    """The module whose main runs its operators in that sequence; a read takes the result that was computed last.

    A repeat is a call of a function of its own, so that it may be cut otherwise than the first run. Results of main are
    those computed last, under their own names. Repeats that nothing reads are left out.
    """
    main, module = operators.main, mod.clone()
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
                again = ModelTensor().write(composite)
                value = call_new(module, unique(f"{name}_again", functions), again, value.args, value.span)
            if left[index] if var in returned else index in ran:
                var = relax.DataflowVar(unique(f"{var.name}.again", taken), var.ty)
            latest[binding.var] = var
            bound.append(relax.VarBinding(var, value))
        ran.add(index)
    return with_main(module, rebuild(main, live(bound, outputs(main))))
