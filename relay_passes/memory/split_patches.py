"""Cut images into column strips that run one after another, where rows alone exceed a budget.

Rewrite:
    b = c1(x); y = c2(b)
      ->  x.columns_0_9 = strided_slice(x); b.columns_0_9 = c1_columns_0_9(x.columns_0_9)
          y.columns_0_8 = c2_columns_0_8(b.columns_0_9)
          x.columns_7_16 = strided_slice(x); b.columns_7_16 = c1_columns_7_16(x.columns_7_16)
          y.columns_8_16 = c2_columns_8_16(b.columns_7_16)
          y = concat(y.columns_0_8, y.columns_8_16)
    A function that computes some columns carries a `ColumnStrip` and the image's `ModelTensor`. An operator that
    cannot be cut recomputes all columns in every strip. Then rows are split as by `SplitSequences`. main carries the
    number of `OperatorsInStrips`.
    A streamed input whose rows may be requested again is read in each strip, for the columns that the strip needs.
Leaves alone: a function that row splits alone bring within the budget, or that strips do not make smaller; streamed
    inputs whose rows arrive only once; the computation of each composite: no bit of a result changes.
Never let TVM's EliminateCommonSubexpr run after this pass, because it may join what strips compute twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, substitute
from relay_passes.memory import strip_composites
from relay_passes.memory.main_writer import MainWriter
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.searched import Searched
from relay_passes.solvers.split.patches import columns_made, columns_read
from relay_passes.solvers.split.search import cut
from relay_passes.solvers.split.segment import Segment
from tvm_ext.core.decisions.composites import ColumnStrip, ModelTensor, SourceNodes, StorageLayout
from tvm_ext.core.decisions.models import OperatorsInStrips
from tvm_ext.core.names import identifier, strip_ending
from tvm_ext.core.row_access import ColumnOperator, Columns


@tvm.transform.module_pass(opt_level=0, name="SplitPatches")
class SplitPatches(SearchingPass):
    """Cut images into column strips where strips need fewer bytes than rows alone."""

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        patches = [one for one in cut(known.in_patches, self.budget_bytes).segments if one.strips]
        if not patches:
            return mod
        module = mod.clone()
        _Rewriter(module, known.operators, known.columns).run(patches)
        return SplitSequences(self.backend, self.budget_bytes)(module)


class _Rewriter:
    """Writes the strips into a module's main function."""

    def __init__(
        self, module: tvm.IRModule, operators: OperatorGraph, columns: Sequence[ColumnOperator | None]
    ) -> None:
        self.module, self.operators, self.columns, self.graph = module, operators, columns, operators.graph()
        self.main = MainWriter(module, operators)

    def run(self, patches: Sequence[Segment]) -> None:
        done = 0
        for patch in patches:
            self.main.bound += [binding for step in self.operators.steps[done : patch.begin] for binding in step]
            self._patch(patch)
            done = patch.end
        self.main.bound += [binding for step in self.operators.steps[done:] for binding in step]
        count = sum(patch.end - patch.begin for patch in patches)
        rebuilt = OperatorsInStrips(count=count).write(self.main.function())
        self.module.update_func(self.module.get_global_var("main"), rebuilt)

    def _patch(self, patch: Segment) -> None:
        """Write the operators of a segment once for each strip, and the concatenation of the results."""
        last = self.operators.steps[patch.end - 1][0]
        strips = [self._strip(patch, strip) for strip in patch.strips]
        whole = self.module[last.value.op]
        nodes, layout = SourceNodes.read(whole).nodes, StorageLayout.read(whole)
        function = strip_composites.joining(strips, nodes, layout)
        joined = self.main.call(f"join_{last.value.op.name_hint}", function, strips, last.value.span)
        self.main.bound.append(relax.VarBinding(last.var, joined))

    def _strip(self, patch: Segment, strip: Columns) -> relax.Var:
        made = columns_made(self.graph, self.columns, patch.begin, patch.end, strip)
        values: dict[relax.Var, dict[Columns | None, relax.Var]] = {}
        """Variables of each value in this strip, by their columns. The columns that are computed come first."""
        for index, columns in zip(range(patch.begin, patch.end), made, strict=True):
            computing, *views = self.operators.steps[index]
            arguments = [
                self._argument(argument, values, columns_read(self.columns[index], position, columns))
                for position, argument in enumerate(computing.value.args)
            ]
            values[computing.var] = {columns: self._compute(index, columns, arguments)}
            for view in views:
                shown = substitute(view.value, {old: held[None] for old, held in values.items() if None in held})
                values[view.var] = {None: self.main.bind(f"{view.var.name}.again", shown)}
        return values[self.operators.steps[patch.end - 1][0].var][strip]

    def _argument(
        self,
        value: relax.Var,
        values: dict[relax.Var, dict[Columns | None, relax.Var]],
        wanted: Columns | None,
    ) -> relax.Var:
        """Return a variable that holds exactly these columns of a value."""
        held = values.setdefault(value, {None: value})
        if wanted in held:
            return held[wanted]
        assert wanted is not None, "what needs all columns has them"
        computed, var = next(iter(held.items()))
        begin, layout = computed[0] if computed else 0, self.main.layout(value)
        function = strip_composites.cutting(var, (wanted[0] - begin, wanted[1] - begin), layout)
        function = ColumnStrip(columns=wanted).write(ModelTensor(name=self._tensor(value)).write(function))
        copy = self.main.call(f"cut_{identifier(value.name)}_{strip_ending(wanted)}", function, [var])
        held[wanted] = self.main.bind(f"{value.name}.{strip_ending(wanted)}", copy)
        return held[wanted]

    def _compute(self, index: int, columns: Columns | None, arguments: Sequence[relax.Var]) -> relax.Var:
        """Write an operator for some columns of its result, or once more for all columns."""
        binding, composite, operator = (
            self.operators.steps[index][0], self.operators.composites[index], self.columns[index],
        )  # fmt: skip
        assert composite is not None, "what runs by rows is a composite"
        name = binding.value.op.name_hint
        if columns is None or operator is None:
            again = ModelTensor().write(composite)
            return self.main.bind(f"{binding.var.name}.again", self.main.call(f"{name}_again", again, arguments))
        function = strip_composites.computing_strip(composite, operator, columns)
        assert function is not None, "whether it can was tried"
        function = ModelTensor(name=self._tensor(binding.var)).write(ColumnStrip(columns=columns).write(function))
        call = self.main.call(f"{name}_{strip_ending(columns)}", function, arguments, binding.value.span)
        return self.main.bind(f"{binding.var.name}.{strip_ending(columns)}", call)

    def _tensor(self, value: relax.Var) -> str:
        """Return the model's own name of a value."""
        shown = (binding.value for binding in bindings(self.operators.main) if binding.var.same_as(value))
        return ModelTensor.read(composite_of(self.module, next(shown, None))).name or value.name
