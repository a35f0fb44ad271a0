"""Choose the processor of each operator, and write the module accordingly.

Rewrite:
    a = c1(x); b = c2(a); d = c3(a); e = c4(b, d)
      ->  a.rows_0_8 = c1_rows_0_8(x.rows_0_9)       c1 is cut: both parts read the halo, and no row is computed twice
          a.rows_8_16 = c1_rows_8_16(x.rows_7_16)    each carries `OperatorProcessor`, except for the first processor
          a = concat(a.rows_0_8, a.rows_8_16)        only where a reader does not read exactly the same rows
          b = c2(a); d = c3(a)                       c3 carries cpu1: both run at once
          e = c4(b, d)
    in an order that agrees with the per-core schedules. main carries the `ProcessorPlacement`, with the predictions.
A sequence that runs row by row is cut as a whole: each processor runs a sequence for its own rows of the last result,
and computes the rows of inner results that it needs for them, some of which the other processor computes too.
Leaves alone: modules for a single processor; functions with anything but composites, or with a composite that no
processor can run; sequences that add up rows or whose inner results are read outside, which stay on one processor; the
computation of each composite: no bit of a result changes.
Never let TVM's EliminateCommonSubexpr run after this pass, because it may join what two processors compute.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

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
from relay_passes.processors.exchanged_rows import Windows, exchanged_rows
from relay_passes.processors.row_parts import RowPart, Rows
from relay_passes.processors.shared_work import driving_of, fast_memory_bytes, shared_work
from tvm_ext.core.decisions.composites import (
    ModelTensor,
    OperatorProcessor,
    ProcessorPlacement,
    RowSplit,
    SourceNodes,
    StorageLayout,
)
from tvm_ext.core.decisions.models import SchedulePeak
from tvm_ext.core.names import identifier
from tvm_ext.core.objectives import Grouping, Objective
from tvm_ext.core.platform import Platform

KIBIBYTE = 1024
WHOLE = RowSplit()
"""The split of a step that is in no sequence."""


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
        forms = chosen.found.forms
        split = {
            index: parts
            for (task, form), chains in work.parts.items()
            if forms[task] == form
            for index, parts in zip(work.unit_of(task), zip(*chains, strict=True), strict=True)
        }
        accelerators = driving.accelerators if driving else frozenset[int]()
        homes = {
            index: 0 if processor in accelerators else processor
            for task in chosen.found.sequence
            if (task, forms[task]) not in work.parts
            for processor in [work.problem.tasks[task].forms[forms[task]].parts[0].processor]
            for index in work.unit_of(task)
        }
        per_byte = self.costs[0].from_cycles(KIBIBYTE) / KIBIBYTE
        exchanged = exchanged_rows(operators, split, homes, per_byte)
        writer = PlacementWriter(module, operators, names, split, exchanged.windows, accelerators)
        for task in chosen.found.sequence:
            form = forms[task]
            if (task, form) in work.parts:
                writer.split(work.unit_of(task))
                continue
            for index in work.unit_of(task):
                writer.whole(index, work.problem.tasks[task].forms[form].parts[0].processor)
        copies = ceil(exchanged.nanoseconds)
        report = placement_report(work, chosen, self.costs, self.objective, self.grouping, driving, copies)
        placed = ProcessorPlacement(report=report).write(SchedulePeak().write(writer.function()))
        return with_main(module, placed)


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """Rows of a value in a variable of their own, on the processor that computes or gathers them."""

    rows: Rows
    var: relax.Var
    processor: int

    def holds(self, wanted: Rows) -> bool:
        return self.rows[0] <= wanted[0] <= wanted[1] <= self.rows[1]


class PlacementWriter:
    """Writes a module's main again, step by step.

    names: of the processors; the name of the first processor is empty.
    parts: of the steps that are cut. windows: rows that processors keep together.
    accelerators: processors whose pieces the first core joins for them.
    """

    def __init__(
        self,
        module: tvm.IRModule,
        operators: OperatorGraph,
        names: Sequence[str],
        parts: Mapping[int, Sequence[RowPart]],
        windows: Windows,
        accelerators: Collection[int] = (),
    ) -> None:
        self.module, self.operators, self.names, self.accelerators = module, operators, names, accelerators
        self.main = MainWriter(module, operators)
        self.parts = parts
        self.windows = dict(windows)
        """Values whose rows are still to be copied."""
        self.pieces: dict[relax.Var, list[_Piece]] = {}
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

    def split(self, unit: Sequence[int]) -> None:
        """Write a step, or the steps of a sequence, whose rows several processors compute."""
        for index in unit:
            for argument in self.operators.steps[index][0].value.args:
                self._exchange(argument)
        last, *views = self.operators.steps[unit[-1]]
        self.pieces[last.var] = [
            self._chain(unit, [self.parts[index][number] for index in unit])
            for number in range(len(self.parts[unit[-1]]))
        ]
        self.unjoined |= {binding.var: unit[-1] for binding in (last, *views)}

    def _chain(self, unit: Sequence[int], chain: Sequence[RowPart]) -> _Piece:
        """Write what one processor computes of some steps, and return the rows of the last result.

        Rows of values from outside are cut first, because the steps of a sequence stay side by side.
        """
        computing = [self.operators.steps[index][0] for index in unit]
        own = {binding.var for binding in computing}
        arguments = [
            [
                None if argument in own else self._rows(argument, wanted, part.processor)
                for argument, wanted in zip(binding.value.args, part.reads, strict=True)
            ]
            for binding, part in zip(computing, chain, strict=True)
        ]
        made: dict[relax.Var, _Piece] = {}
        for binding, part, given in zip(computing, chain, arguments, strict=True):
            passed = [
                self._inner_rows(argument, wanted, made[argument], part) if known is None else known
                for argument, wanted, known in zip(binding.value.args, part.reads, given, strict=True)
            ]
            function = OperatorProcessor(processor=self.names[part.processor]).write(part.function)
            function = ModelTensor().write(function)
            ending = f"{part.unit}_{part.rows[0]}_{part.rows[1]}"
            call = self.main.call(f"{binding.value.op.name_hint}_{ending}", function, passed, binding.value.span)
            var = self.main.bind(f"{binding.var.name}.{ending}", call)
            made[binding.var] = _Piece(rows=part.rows, var=var, processor=part.processor)
        return made[computing[-1].var]

    def _inner_rows(self, value: relax.Var, wanted: Rows | None, held: _Piece, part: RowPart) -> relax.Var:
        """Return the rows of an inner result of a sequence that a part reads, copied row by row if it has more."""
        if wanted is None or wanted == held.rows:
            return held.var
        return self._cut(value, wanted, held.var, held.rows[0], part.processor, RowSplit.read(part.function))

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
        around = [piece for piece in self.pieces.get(value, []) if piece.holds(wanted)]
        # A processor's own rows come first, then the fewest, to wait for nobody.
        around.sort(key=lambda piece: (piece.processor != processor, piece.rows[1] - piece.rows[0]))
        exact = next((piece.var for piece in around if piece.rows == wanted), None)
        if exact is not None:
            return exact
        if not around:
            self._join_all(value, processor)
        begin, source = (around[0].rows[0], around[0].var) if around else (0, value)
        self.cut[value, wanted] = self._cut(value, wanted, source, begin, processor)
        return self.cut[value, wanted]

    def _cut(
        self, value: relax.Var, wanted: Rows, source: relax.Var, begin: int, processor: int, split: RowSplit = WHOLE
    ) -> relax.Var:
        """Write a copy of some rows of a value, and return its variable.

        source: holds the rows from `begin` on. split: the sequence in which the rows are copied, if any.
        """
        local = wanted[0] - begin, wanted[1] - begin
        function = split.write(strip_composites.cutting(source, local, self.main.layout(value), ROW_AXIS))
        function = OperatorProcessor(processor=self.names[processor]).write(function)
        call = self.main.call(f"cut_{identifier(value.name)}_{_ending(wanted)}", function, [source])
        return self.main.bind(f"{value.name}.{_ending(wanted)}", call)

    def _exchange(self, value: relax.Expr) -> None:
        """Write the rows that each processor keeps together, at the first read of a value whose rows are copied.

        All processors copy before any of them computes, so that a part may be overwritten when its own reader begins.
        """
        pieces = self.pieces.get(value, [])
        if value not in self.windows:
            return
        whole = self.operators.composites[self.unjoined[value]]
        for processor, rows in self.windows.pop(value, {}).items():
            gathered: list[relax.Var] = []
            for piece in pieces:
                some = max(rows[0], piece.rows[0]), min(rows[1], piece.rows[1])
                if piece.processor == processor:
                    gathered.append(piece.var)
                elif some[0] < some[1]:
                    gathered.append(self._cut(value, some, piece.var, piece.rows[0], processor))
            call = self._joining(f"gather_{identifier(value.name)}_{_ending(rows)}", gathered, whole, processor)
            if rows == (0, pieces[-1].rows[1]):
                self.main.bound.append(relax.VarBinding(value, call))
                del self.unjoined[value]
                continue
            var = self.main.bind(f"{value.name}.{_ending(rows)}", call)
            self.pieces[value] = [*self.pieces[value], _Piece(rows=rows, var=var, processor=processor)]

    def _join_all(self, value: relax.Expr, processor: int) -> None:
        """Join all results in pieces that an expression reads."""
        for leaf in operands(value):
            self._exchange(leaf)
            if isinstance(leaf, relax.Var) and leaf in self.unjoined:
                self._join(self.unjoined[leaf], processor)

    def _join(self, index: int, processor: int) -> None:
        """Join the pieces of a result, and write its views."""
        computing, *views = self.operators.steps[index]
        whole = self.operators.composites[index]
        pieces = [piece.var for piece in self.pieces[computing.var]]
        joined = self._joining(f"join_{computing.value.op.name_hint}", pieces, whole, processor)
        self.main.bound += [relax.VarBinding(computing.var, joined), *views]
        for binding in (computing, *views):
            del self.unjoined[binding.var]

    def _joining(
        self, name: str, pieces: Sequence[relax.Var], whole: relax.Function | None, processor: int
    ) -> relax.Call:
        """Return a call that joins rows on a processor. whole: the function that computes all rows."""
        nodes = SourceNodes.read(whole).nodes
        function = strip_composites.joining(pieces, nodes, StorageLayout.read(whole), ROW_AXIS)
        function = ModelTensor.read(whole).write(OperatorProcessor(processor=self.names[processor]).write(function))
        return self.main.call(name, function, pieces)


def _ending(rows: Rows) -> str:
    """Return the suffix of the names of some rows of a tensor, and of the functions that compute them."""
    return f"rows_{rows[0]}_{rows[1]}"
