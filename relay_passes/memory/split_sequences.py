"""Split sequences of operators that exceed the budget: their rows run in series, through rings of a few rows.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b)
      ->  the same calls; the functions c1, c2, c3 carry a `RowSplit`: the name of the sequence that runs in series, and
          the number of rows of a result per call. The last function may add up rows of its input as they arrive.
          main carries the `SplitCost` and the `SchedulePeak`.
    A row of a vector is a range of its channels. Of the dense layers e = d1(x); f = d2(e), d1 computes a range of e
    at a time and d2 adds it up. Only the last operator of a sequence adds up rows, because its result is complete only
    after all of its input has arrived.
    A streamed input (`relay_passes.layout.stream_ports`) is split from its first reader on wherever that is possible,
    whatever the budget, so that only rows of the input are stored.
Leaves alone: a function within the budget; operators without rows; the computation of each composite. The module
runs in TVM as before, because the order of rows changes no bit.
"""

from __future__ import annotations

from dataclasses import replace

import tvm

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.dataflow import with_main
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.searched import Searched
from relay_passes.solvers.graph import peak_bytes
from relay_passes.solvers.split.search import Split, cut
from tvm_ext.core.decisions.composites import RowSplit
from tvm_ext.core.decisions.models import SchedulePeak, SplitCost


@tvm.transform.module_pass(opt_level=0, name="SplitSequences")
class SplitSequences(SearchingPass):
    """Cut the order of composites into sequences that run row by row, for a peak within the budget."""

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        operators, graph = known.operators, known.graph
        whole = peak_bytes(graph, range(len(graph.nodes)))
        if self.budget_bytes is not None and whole <= self.budget_bytes and not operators.reading:
            return mod
        found = cut(known.by_rows, self.budget_bytes)
        if found.peak_bytes >= whole and not operators.reading:
            return mod
        return cut_module(mod, operators, found)


def cut_module(mod: tvm.IRModule, operators: OperatorGraph, found: Split) -> tvm.IRModule:
    """Return the module with its operators cut into sequences."""
    module = mod.clone()
    for split, (computing, *_) in zip(_splits(found), operators.steps, strict=True):
        if split is not None:
            module.update_func(computing.value.op, split.write(mod[computing.value.op]))
    main = SplitCost(peak_bytes=found.peak_bytes, instructions=found.overhead).write(mod["main"])
    return with_main(module, SchedulePeak(peak_bytes=found.peak_bytes, proved=False).write(main))


def _splits(found: Split) -> list[RowSplit | None]:
    """Return the part of each operator in a sequence, or None for an operator that runs whole."""
    splits: list[RowSplit | None] = []
    count = 0
    for segment in found.segments:
        together = segment.end - segment.begin
        if segment.rows_per_call == 0:
            splits += [None] * together
            continue
        split = RowSplit(sequence=f"sequence_{count}", rows_per_call=segment.rows_per_call)
        splits += [*[split] * (together - 1), replace(split, input_rows=segment.input_rows)]
        count += 1
    return splits
