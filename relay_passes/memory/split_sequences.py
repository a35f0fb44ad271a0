"""Splits oversized sequences of operators: their rows run in series, through rings of a few rows each.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b)
      ->  the same calls; the functions c1, c2, c3 carry the attributes `sequence`, the name of what runs in series, and
          `rows_per_call`, how many rows of a result are computed at a time. The last one may add up rows of what it
          reads as they come: `input_rows` says how many there are. main says what it came to: attributes
          `split_peak_bytes` and `split_instructions` (modelled, of calls and of asking for rows).
    Rows of a vector are runs of its channels, so of `e = d1(x); f = d2(e)`, dense layers, d1 makes a run of e at a time
    and d2 adds it up. Only the last of a sequence adds up: its result is there when all of what it reads has come.
    A streamed input (`relay_passes.layout.stream_ports`) is split from where it comes in wherever that can be, whatever
    the budget: only rows of it are kept.
Leaves alone: a function within the budget; operators without rows; what each composite computes. The module runs in
TVM as before: which rows are computed when changes no bit.
"""

from __future__ import annotations

import tvm

from relay_passes.backend import Backend
from relay_passes.dataflow import is_dataflow
from relay_passes.searched import Searched, searched
from relay_passes.solvers.liveness import peak_bytes
from relay_passes.solvers.split.search import Split, cut


@tvm.transform.module_pass(opt_level=0, name="SplitSequences")
class SplitSequences:
    """See the module's docstring.

    budget_bytes: bytes alive that are allowed; None asks for the fewest possible. known: of the module, where it was
    searched before.
    """

    def __init__(self, backend: Backend, budget_bytes: int | None, known: Searched | None = None) -> None:
        self.backend, self.budget_bytes, self.known = backend, budget_bytes, known

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        known = searched(mod, self.backend, self.known)
        operators, graph = known.operators, known.graph
        whole = peak_bytes(graph, range(len(graph.nodes)))
        if self.budget_bytes is not None and whole <= self.budget_bytes and not operators.reading:
            return mod
        found = cut(known.by_rows, self.budget_bytes)
        if found.peak_bytes >= whole and not operators.reading:
            return mod
        module = mod.clone()
        for label, (computing, *_) in zip(_labels(found), operators.steps, strict=True):
            if label is not None:
                module.update_func(computing.value.op, mod[computing.value.op].with_attrs(label))
        attributes = {
            "split_peak_bytes": found.peak_bytes, "split_instructions": found.overhead,
            "schedule_peak_bytes": found.peak_bytes, "schedule_proved": False,
        }  # fmt: skip
        module.update_func(module.get_global_var("main"), main.with_attrs(attributes))
        return module


def _labels(found: Split) -> list[dict[str, str | int] | None]:
    """Of each operator, the attributes that say how it runs in a sequence; None for one that runs whole."""
    labels: list[dict[str, str | int] | None] = []
    count = 0
    for segment in found.segments:
        together = segment.end - segment.begin
        if segment.rows_per_call == 0:
            labels += [None] * together
            continue
        label: dict[str, str | int] = {"sequence": f"sequence_{count}", "rows_per_call": segment.rows_per_call}
        last = {"input_rows": segment.input_rows} if segment.input_rows else {}
        labels += [*[label] * (together - 1), label | last]
        count += 1
    return labels
