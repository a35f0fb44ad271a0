"""Choose the processor of each operator, and write the module accordingly.

Rewrite:
    a = c1(x); b = c2(a); d = c3(a); e = c4(b, d)
      ->  a.rows_0_8 = c1_rows_0_8(x.rows_0_9)       c1 is cut: both parts read the halo, and no row is computed twice
          a.rows_8_16 = c1_rows_8_16(x.rows_7_16)    each carries `OperatorProcessor`, except for the first processor
          a = concat(a.rows_0_8, a.rows_8_16)        only where a reader does not read exactly the same rows
          b = c2(a); d = c3(a)                       c3 carries cpu1: both run at once
          e = c4(b, d)
    in an order that agrees with the per-core schedules. main carries the `ProcessorPlacement`, with the predictions.
Leaves alone: modules for a single processor; functions with anything but composites, or with a composite that no
processor can run; sequences that run row by row, which stay on one processor; the computation of each composite: no
bit of a result changes.
Never let TVM's EliminateCommonSubexpr run after this pass, because it may join what two processors compute.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.composites import has_composites_only
from relay_passes.dataflow import is_dataflow, operands, outputs, with_main
from relay_passes.memory import strip_composites
from relay_passes.memory.main_writer import MainWriter
from relay_passes.memory.strip_composites import ROW_AXIS
from relay_passes.processors.choose_processors import choose_processors, placement_report
from relay_passes.processors.row_parts import RowPart, Rows
from relay_passes.processors.shared_work import driving_of, fast_memory_bytes, shared_work
from tvm_ext.core.decisions.composites import (
    ModelTensor,
    OperatorProcessor,
    ProcessorPlacement,
    SourceNodes,
    StorageLayout,
)
from tvm_ext.core.decisions.models import SchedulePeak
from tvm_ext.core.names import identifier
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.platform import Platform


@tvm.transform.module_pass(opt_level=0, name="PlaceProcessors")
class PlaceProcessors:
    """Place operators on processors, whole or in rows.

    costs: of the processors to choose from, starting with the first processor.
    tight_bytes: where set, operators keep their order, and accelerators compute no operator at which more bytes are
    live.
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


Pieces = list[tuple[Rows, relax.Var]]
"""Rows of a value, and the variable that holds them, in order."""


class PlacementWriter:
    """Writes a module's main again, step by step.

    names: of the processors; the name of the first processor is empty.
    accelerators: processors whose pieces the first core joins for them.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        operators: OperatorGraph,
        names: Sequence[str],
        accelerators: Collection[int] = (),
    ) -> None:
        self.module, self.operators, self.names, self.accelerators = module, operators, names, accelerators
        self.main = MainWriter(module, operators)
        self.pieces: dict[relax.Var, Pieces] = {}
        self.cut: dict[tuple[relax.Var, Rows], relax.Var] = {}
        self.unjoined: dict[relax.Var, int] = {}
        """The producing step of each result in pieces that nobody has yet read whole, and of its views."""
        self.placed: dict[tvm.ir.GlobalVar, int] = {}
        """Functions that are called whole, and the processors that they carry."""

    def whole(self, index: int, processor: int) -> None:
        """Write a step that a single processor runs."""
        computing, *views = self.operators.steps[index]
        self._join_all(computing.value, 0 if processor in self.accelerators else processor)
        self.main.bound += [relax.VarBinding(computing.var, self._placed(computing.value, processor)), *views]

    def split(self, index: int, parts: Sequence[RowPart]) -> None:
        """Write a step whose rows several processors compute."""
        computing, *views = self.operators.steps[index]
        pieces: Pieces = []
        for part in parts:
            arguments = [
                self._rows(argument, wanted, part.processor)
                for argument, wanted in zip(computing.value.args, part.reads, strict=True)
            ]
            function = OperatorProcessor(processor=self.names[part.processor]).write(part.function)
            function = ModelTensor().write(function)
            ending = f"{part.unit}_{part.rows[0]}_{part.rows[1]}"
            call = self.main.call(f"{computing.value.op.name_hint}_{ending}", function, arguments, computing.value.span)
            pieces.append((part.rows, self.main.bind(f"{computing.var.name}.{ending}", call)))
        self.pieces[computing.var] = pieces
        self.unjoined |= {binding.var: index for binding in (computing, *views)}

    def function(self) -> relax.Function:
        """Return the rewritten function, and remove composites that are no longer called from the module."""
        for result in outputs(self.operators.main):
            self._join_all(result, 0)
        return self.main.function()

    def _placed(self, call: relax.Call, processor: int) -> relax.Call:
        """Return the call of a function that carries its processor.

        Where another processor runs the same function too, a copy of it is called.
        """
        known = self.placed.setdefault(call.op, processor)
        decision = OperatorProcessor(processor=self.names[processor])
        if known == processor:
            if OperatorProcessor.read(self.module[call.op]) != decision:
                self.module.update_func(call.op, decision.write(self.module[call.op]))
            return call
        function = decision.write(self.module[call.op])
        return self.main.call(f"{call.op.name_hint}_{self.names[processor] or 'first'}", function, call.args, call.span)

    def _rows(self, value: relax.Expr, wanted: Rows | None, processor: int) -> relax.Expr:
        """Return a variable that holds exactly these rows of a value, or the value itself for None."""
        if wanted is None or not isinstance(value, relax.Var):
            self._join_all(value, processor)
            return value
        if (value, wanted) in self.cut:
            return self.cut[value, wanted]
        around = [
            (rows, var) for rows, var in self.pieces.get(value, []) if rows[0] <= wanted[0] <= wanted[1] <= rows[1]
        ]
        for rows, var in around:
            if rows == wanted:
                return var
        if not around:
            self._join_all(value, processor)
        begin, source = (around[0][0][0], around[0][1]) if around else (0, value)
        local = wanted[0] - begin, wanted[1] - begin
        function = strip_composites.cutting(source, local, self.main.layout(value), ROW_AXIS)
        function = OperatorProcessor(processor=self.names[processor]).write(function)
        call = self.main.call(f"cut_{identifier(value.name)}_{_ending(wanted)}", function, [source])
        self.cut[value, wanted] = self.main.bind(f"{value.name}.{_ending(wanted)}", call)
        return self.cut[value, wanted]

    def _join_all(self, value: relax.Expr, processor: int) -> None:
        """Join all results in pieces that an expression reads."""
        for leaf in operands(value):
            if isinstance(leaf, relax.Var) and leaf in self.unjoined:
                self._join(self.unjoined[leaf], processor)

    def _join(self, index: int, processor: int) -> None:
        """Join the pieces of a result, and write its views."""
        computing, *views = self.operators.steps[index]
        whole = self.operators.composites[index]
        pieces = [var for _, var in self.pieces[computing.var]]
        nodes = SourceNodes.read(whole).nodes
        function = strip_composites.joining(pieces, nodes, StorageLayout.read(whole), ROW_AXIS)
        function = ModelTensor.read(whole).write(OperatorProcessor(processor=self.names[processor]).write(function))
        joined = self.main.call(f"join_{computing.value.op.name_hint}", function, pieces, computing.value.span)
        self.main.bound += [relax.VarBinding(computing.var, joined), *views]
        for binding in (computing, *views):
            del self.unjoined[binding.var]


def _ending(rows: Rows) -> str:
    """Return the suffix of the names of some rows of a tensor, and of the functions that compute them."""
    return f"rows_{rows[0]}_{rows[1]}"
