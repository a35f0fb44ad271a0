"""Move the operands and results of accelerators to the memories that they reach, other than the default memory.

Rewrite:
    b = c1(a); d = c2(b); e = c3(d)      c1 and c2 carry npu, which reaches only npu_ram; c3 runs on a core
      ->  a.npu_ram = move(a, npu_ram); b.npu_ram = c1(a.npu_ram)     c1 and c2 carry `OperatorMemories`
          d.npu_ram = c2(b.npu_ram)                                   no move between the two
          d = move(d.npu_ram, home); e = c3(d)                        where a core first reads it
Leaves alone: composites of cores, and of accelerators that reach the default memory.
"""

from __future__ import annotations

from collections import Counter

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import VIEWS
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, is_dataflow, op_name, operands, outputs, rebuild, substitute, with_main
from relay_passes.own_operators import move
from tvm_ext.core.decisions.composites import ModelTensor, OperatorMemories, OperatorProcessor
from tvm_ext.core.names import unique
from tvm_ext.core.platform import Platform


@tvm.transform.module_pass(opt_level=0, name="ReachAccelerators")
class ReachAccelerators:
    """Move operands to accelerators, and results back, over the platform's links."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        near = {one.name: memory for one in self.platform.processors if (memory := self.platform.near_memory(one))}
        if not near or not is_dataflow(mod["main"]):
            return mod
        rewriting = _Rewriting(mod.clone(), self.platform, near)
        return with_main(rewriting.module, rewriting.function())


class _Rewriting:
    """A single walk over the bindings.

    copies: the copies of variables, by memory.
    apart: variables that exist only in an accelerator's memory so far, and that memory.
    """

    def __init__(self, module: tvm.IRModule, platform: Platform, near: dict[str, str]) -> None:
        self.module, self.platform, self.near = module, platform, near
        self.main: relax.Function = module["main"]
        self.taken = {binding.var.name for binding in bindings(self.main)} | {p.name for p in self.main.params}
        values = [binding.value for binding in bindings(self.main)]
        self.calls = Counter(value.op for value in values if isinstance(value, relax.Call))
        self.copies: dict[tuple[relax.Var, str], relax.Var] = {}
        self.apart: dict[relax.Var, str] = {}
        self.bound: list[relax.VarBinding] = []

    def function(self) -> relax.Function:
        for binding in bindings(self.main):
            self._write(binding)
        for result in outputs(self.main):
            self._at_home(result)
        return rebuild(self.main, self.bound, outputs(self.main))

    def _write(self, binding: relax.VarBinding) -> None:
        composite = composite_of(self.module, binding.value)
        memory = self.near.get(OperatorProcessor.read(composite).processor, "") if composite is not None else ""
        read = [leaf for leaf in operands(binding.value) if isinstance(leaf, relax.Var)]
        if composite is not None and not memory and _is_view(composite):
            memory = next((self.apart[leaf] for leaf in read if leaf in self.apart), "")
            if memory:  # a view of a value that exists only in that memory
                self._bind_apart(binding, memory, read)
                return
        if composite is None or not memory:
            for leaf in read:
                self._at_home(leaf)
            self.bound.append(binding)
            return
        callee = binding.value.op
        weights = self.platform.reached_by(OperatorProcessor.read(composite).processor, self.platform.weights)
        places = OperatorMemories(memory=memory, weights_memory="" if weights else memory)
        named = ModelTensor.read(composite).name or binding.var.name if self.calls[callee] == 1 else ""
        self.module.update_func(callee, ModelTensor(name=named).write(places.write(self.module[callee])))
        self._bind_apart(binding, memory, read)

    def _bind_apart(self, binding: relax.VarBinding, memory: str, read: list[relax.Var]) -> None:
        """Bind a value in the memory of an accelerator. Its own variable is bound only where another step reads it."""
        moved = {leaf: self._copied(leaf, memory) for leaf in read}
        self.copies[binding.var, memory] = self._bind(binding.var, memory, substitute(binding.value, moved))
        self.apart[binding.var] = memory

    def _copied(self, leaf: relax.Var, memory: str) -> relax.Var:
        """Return a variable's copy in a memory."""
        if (leaf, memory) not in self.copies:
            self._at_home(leaf)
            self.copies[leaf, memory] = self._bind(leaf, memory, move(leaf, memory))
        return self.copies[leaf, memory]

    def _at_home(self, value: relax.Expr) -> None:
        """Move to the default memory what an expression reads and only an accelerator's memory holds."""
        for leaf in operands(value):
            if isinstance(leaf, relax.Var) and leaf in self.apart:
                copy = self.copies[leaf, self.apart.pop(leaf)]
                self.bound.append(relax.VarBinding(leaf, move(copy, self.platform.activations)))

    def _bind(self, var: relax.Var, memory: str, value: relax.Expr) -> relax.Var:
        new = relax.DataflowVar(unique(f"{var.name}.{memory}", self.taken), value.ty)
        self.bound.append(relax.VarBinding(new, value))
        return new


def _is_view(composite: relax.Function) -> bool:
    inner = bindings(composite)
    return len(inner) == 1 and op_name(inner[0].value) in VIEWS
