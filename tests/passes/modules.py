"""Relax modules for tests, written from calls where TVMScript cannot say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, map_dataflow, rebuild, with_span


def module_of(params: Sequence[relax.Var], body: Callable[[relax.BlockBuilder], relax.Expr]) -> tvm.IRModule:
    """A module whose `main` is one dataflow block that returns what `body` emits last."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            result = builder.emit_output(body(builder))
        builder.emit_func_output(result)
    return builder.get()


def without_spans(mod: tvm.IRModule) -> tvm.IRModule:
    """The module as if no operator knew its origin; TVMScript names lines of the test itself."""

    def strip(func: relax.Function) -> relax.Function:
        return rebuild(func, [relax.VarBinding(b.var, with_span(b.value, None)) for b in bindings(func)])

    return map_dataflow(mod, strip)
