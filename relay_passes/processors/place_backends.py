"""Choose the back end of each operator in TVM's virtual machine: our C, TVM's own code, or other code generators.

Rewrite:
    a = c1(x); b = c2(x); d = c3(a); e = c4(b, d)
      ->  a = c1(x); d = c3(a)          each composite carries `OperatorProcessor`, none for our C
          b = c2(x); e = c4(b, d)       c2 and c4 carry llvm
    in an order with few runs per back end. main carries the `ProcessorPlacement`, with the times on each.
Leaves alone: functions with anything but composites; the computation of each composite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.backend import Backend
from relay_passes.composites import composite_of, has_composites_only
from relay_passes.dataflow import is_dataflow, operands, with_main
from relay_passes.memory.main_writer import MainWriter
from relay_passes.processors.backend_work import BackendWork, backend_report, backend_work
from relay_passes.processors.tvm_costs import OperatorCosts
from relay_passes.solvers.processors.runs import in_runs
from tvm_ext.core.decisions.composites import OperatorProcessor, ProcessorPlacement, SourceNodes
from tvm_ext.core.decisions.models import SchedulePeak
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.platform import Platform


@tvm.transform.module_pass(opt_level=0, name="PlaceBackends")
class PlaceBackends:
    """Place operators on back ends.

    costs: of the platform's first processor, then of TVM's processors.
    backend: the compiler of our C.
    call_seconds: time of a call of our C.
    forced: name of the processor by operator of the model.
    measured: whether the costs are measured.
    by_energy: whether to minimize the energy instead of the time.
    """

    def __init__(
        self,
        platform: Platform,
        backend: Backend,
        costs: Sequence[OperatorCosts],
        *,
        call_seconds: float,
        forced: Mapping[str, str],
        measured: bool,
        by_energy: bool,
    ) -> None:
        self.platform, self.backend, self.costs = platform, backend, costs
        self.call_seconds, self.forced, self.measured, self.by_energy = call_seconds, forced, measured, by_energy

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main) or not has_composites_only(mod):
            return mod
        operators = OperatorGraph(mod, main, self.backend)
        work = backend_work(
            operators, self.costs, self.platform, self.call_seconds, self._forced(operators), by_energy=self.by_energy
        )
        found, alone = work.assigned()
        chosen = [work.problem.tasks[step + 1].forms[found.forms[step + 1]].parts[0].processor for step in _steps(work)]
        makers = [[task - 1 for task in work.problem.makers[step + 1] if task] for step in _steps(work)]
        module = mod.clone()
        writer = _Writer(module, operators, ["", *(cost.processor.name for cost in self.costs[1:])])
        writer.views_of_inputs(chosen)
        for step in in_runs(makers, chosen):
            writer.step(step, chosen[step])
        report = backend_report(operators, work, found, alone, chosen, measured=self.measured)
        placed = ProcessorPlacement(report=report).write(SchedulePeak().write(writer.main.function()))
        return with_main(module, placed)

    def _forced(self, operators: OperatorGraph) -> dict[int, int]:
        """Return the steps that the user has placed, with their processors. Raises BadOptions."""
        processors = [cost.processor.name for cost in self.costs]
        steps: dict[str, list[int]] = {}
        for number, composite in enumerate(operators.composites):
            for name in {operators.steps[number][0].value.op.name_hint, *SourceNodes.read(composite).nodes}:
                steps.setdefault(name, []).append(number)
        found: dict[int, int] = {}
        for name, processor in self.forced.items():
            if processor not in processors:
                raise BadOptions(
                    f"forced {name}={processor}: unknown processor; processors in use are {', '.join(processors)}."
                )
            if name not in steps:
                near = get_close_matches(name, steps, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise BadOptions(f"forced {name}={processor}: no operator of the model has this name.{hint}")
            for step in steps[name]:
                if self.costs[processors.index(processor)].nanoseconds(operators.composites[step]) is None:
                    raise BadOptions(
                        f"forced {name}={processor}: {processor} cannot run this operator; leave it out of forced, or "
                        "name another processor."
                    )
                found[step] = processors.index(processor)
        return found


def _steps(work: BackendWork) -> range:
    return range(len(work.times))


class _Writer:
    """Writes main in another order, with the processor of each composite.

    names: of the processors; the name of the first processor is empty.
    """

    def __init__(self, module: tvm.IRModule, operators: OperatorGraph, names: Sequence[str]) -> None:
        self.module, self.operators, self.names = module, operators, names
        self.main = MainWriter(module, operators)
        self.main.bound = []
        self.placed: dict[tvm.ir.GlobalVar, int] = {}

    def views_of_inputs(self, chosen: Sequence[int]) -> None:
        """Place views of parameters on the processor that reads them first, or on ours where they have no reader."""
        readers: dict[relax.Var, int] = {}
        for step, processor in zip(self.operators.steps, chosen, strict=True):
            for leaf in operands(step[0].value):
                readers.setdefault(leaf, processor)
        for binding in reversed(self.operators.first):
            for leaf in operands(binding.value):
                readers.setdefault(leaf, readers.get(binding.var, 0))
        for binding in self.operators.first:
            self._bind(binding, readers.get(binding.var, 0))

    def step(self, step: int, processor: int) -> None:
        """Write an operator and the views of its results."""
        for binding in self.operators.steps[step]:
            self._bind(binding, processor)

    def _bind(self, binding: relax.VarBinding, processor: int) -> None:
        self.main.bound.append(relax.VarBinding(binding.var, self._on(binding.value, processor)))

    def _on(self, value: relax.Expr, processor: int) -> relax.Expr:
        """Return the call of a function that carries its processor.

        Where another processor runs the same function too, a copy of it is called.
        """
        if composite_of(self.module, value) is None:
            return value
        decision = OperatorProcessor(processor=self.names[processor])
        if self.placed.setdefault(value.op, processor) == processor:
            self.module.update_func(value.op, decision.write(self.module[value.op]))
            return value
        function: Any = decision.write(self.module[value.op])
        name = f"{value.op.name_hint}_{self.names[processor] or 'first'}"
        return self.main.call(name, function, value.args, value.span)
