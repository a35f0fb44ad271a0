"""Bindings of a new function, collected in the order in which they are made, each under a name of its own."""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax

from relay_passes.dataflow import infer, with_span


class NamedBindings:
    """A growing sequence of bindings. taken: names that others have already.

    sequence: the bindings so far.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.sequence: list[relax.VarBinding] = []
        self._taken = set(taken)

    def keep(self, binding: relax.VarBinding) -> relax.Var:
        """A binding of the old function, as it is."""
        self.sequence.append(binding)
        return binding.var

    def bind(
        self, name: str, value: relax.Expr, *, keep_name: bool = False, span: tvm.ir.Span | None = None
    ) -> relax.Var:
        """The value under that name, or with a number behind it where the name is taken; a variable as it is.

        keep_name: whether the name is the value's own, taken by it in the old function. span: of the operator that the
        value is part of.
        """
        if isinstance(value, relax.Var):
            return value
        typed = infer(value) if isinstance(value, relax.Call) else value
        if span is not None:
            typed = with_span(typed, span)
        typed = relax.BlockBuilder().normalize(typed)
        var = relax.DataflowVar(name if keep_name else self.free(name), typed.ty)
        return self.keep(relax.VarBinding(var, typed))

    def slice_rows(
        self, name: str, source: relax.Var, axis: int, begin: int, end: int, *, step: int = 1, rows: int
    ) -> relax.Var:
        """Rows [begin, end) of the source's `rows` along the axis, every `step`th; the source itself where all are."""
        if (begin, end, step) == (0, rows, 1):
            return source
        return self.bind(name, relax.op.strided_slice(source, [axis], [begin], [end], [step]))

    def free(self, name: str) -> str:
        """The name, or the first one with a number behind it that nothing has; taken from now on."""
        candidate, number = name, 0
        while candidate in self._taken:
            number += 1
            candidate = f"{name}.{number}"
        self._taken.add(candidate)
        return candidate
