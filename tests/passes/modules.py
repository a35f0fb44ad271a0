"""Relax modules for tests, written from calls where TVMScript cannot say it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm
from tvm import relax


def module_of(params: Sequence[relax.Var], body: Callable[[relax.BlockBuilder], relax.Expr]) -> tvm.IRModule:
    """A module whose `main` is one dataflow block that returns what `body` emits last."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            result = builder.emit_output(body(builder))
        builder.emit_func_output(result)
    return builder.get()
