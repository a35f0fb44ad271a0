"""Write the main function of a module again, binding by binding, with new functions beside the existing functions."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.composites import call_new
from relay_passes.dataflow import bindings, names_in, outputs, rebuild
from tvm_ext.core.decisions.composites import StorageLayout
from tvm_ext.core.names import unique


class MainWriter:
    """Bindings in order, and unused names.

    An instance lives for a single rewrite of a module, which it changes.
    """

    def __init__(self, module: tvm.IRModule, operators: OperatorGraph) -> None:
        self.module, self.operators = module, operators
        main = operators.main
        self.bound = list(operators.first)
        self._taken = names_in(main)
        self._functions = {var.name_hint for var, _ in module.functions_items()}

    def call(
        self, name: str, function: relax.Function, arguments: Sequence[relax.Expr], span: tvm.ir.Span | None = None
    ) -> relax.Call:
        """Add a function to the module and return a call of it."""
        return call_new(self.module, unique(name, self._functions), function, arguments, span)

    def bind(self, name: str, value: relax.Expr) -> relax.Var:
        """Bind a value to a new variable."""
        var = relax.DataflowVar(unique(name, self._taken), value.ty)
        self.bound.append(relax.VarBinding(var, value))
        return var

    def layout(self, value: relax.Var) -> StorageLayout:
        """Return the layout in which an operator computes a value, or the model's layout for other values."""
        pairs = zip(self.operators.steps, self.operators.composites, strict=True)
        return StorageLayout.read(next((composite for step, composite in pairs if step[0].var.same_as(value)), None))

    def function(self) -> relax.Function:
        """Return the rewritten function, and remove composites that are no longer called from the module."""
        main = self.operators.main
        rebuilt = rebuild(main, self.bound, outputs(main))
        called = {binding.value.op for binding in bindings(rebuilt) if isinstance(binding.value, relax.Call)}
        for op in dict.fromkeys(step[0].value.op for step in self.operators.steps):
            if op not in called:
                del self.module[op]
        return rebuilt
