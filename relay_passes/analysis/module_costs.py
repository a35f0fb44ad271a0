"""Predicted costs of a module of composites on one processor: cycles, bytes of constants, and live bytes.

They compare forms of the same network ahead of the searches that make it fit, so the operators stand in the module's
own order, and memories count as in `processor_costs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, op_name, operands
from relay_passes.solvers.graph import peak_bytes

_MOVES = frozenset(("relax.permute_dims", "relax.reshape"))


@dataclass(frozen=True, kw_only=True)
class OperatorCost:
    """Predicted cycles of an operator.

    inputs: names of the module's inputs that its result depends on. only_moves: whether it permutes or copies, as at
    the borders of a module that has another layout inside.
    """

    inputs: frozenset[str]
    cycles: float
    only_moves: bool


@dataclass(frozen=True, kw_only=True)
class ModuleCosts:
    """Predicted costs of a module: of its operators, bytes of constants, and live bytes at the peak of its schedule."""

    operators: tuple[OperatorCost, ...]
    weights_bytes: int
    peak_bytes: int

    @property
    def cycles(self) -> int:
        """Predicted cycles of one run."""
        return round(sum(operator.cycles for operator in self.operators))

    @property
    def num_bytes(self) -> int:
        """Bytes of constants and of the activations at the peak."""
        return self.weights_bytes + self.peak_bytes

    def report(self) -> dict[str, int]:
        """Return the costs as the report has them."""
        return {"cycles": self.cycles, "weights_bytes": self.weights_bytes, "peak_bytes": self.peak_bytes}


CostsOf = Callable[[tvm.IRModule], ModuleCosts | None]
"""Function that predicts the costs of a module in float or QDQ form; None where an operator has no known cost."""


def module_costs(mod: tvm.IRModule, costs: ProcessorCosts) -> ModuleCosts | None:
    """Return the costs of a module whose main only calls composites; None where the processor cannot run one."""
    main = mod["main"]
    sources: dict[relax.Var, frozenset[str]] = {param: frozenset((param.name,)) for param in main.params}
    found, weights_bytes = list[OperatorCost](), 0
    for binding in bindings(main):
        read = [sources[leaf] for leaf in operands(binding.value) if leaf in sources]
        sources[binding.var] = frozenset[str]().union(*read)
        composite = composite_of(mod, binding.value)
        if composite is None:
            continue
        cycles = costs.cycles(composite)
        if cycles is None:
            return None
        weights_bytes += costs.backend.footprint(composite).weights_bytes
        only_moves = all(op_name(inner.value) in _MOVES for inner in bindings(composite))
        found.append(OperatorCost(inputs=sources[binding.var], cycles=cycles, only_moves=only_moves))
    graph = OperatorGraph(mod, main, costs.backend).graph()
    peak = peak_bytes(graph, range(len(graph.nodes)))
    return ModuleCosts(operators=tuple(found), weights_bytes=weights_bytes, peak_bytes=peak)
