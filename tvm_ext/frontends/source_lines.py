"""Where an operator of a Relax module is written: the text of its binding, and its line in a TVMScript file.

    z = R.sort(y, axis=-1) (model.py:18)

Modules that TVMScript parsed have the line of each call as its span. Modules of a BlockBuilder have no lines; their
bindings are named by the text alone. Only the name of the file is kept, because its folder must not get into C.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax

_MOST_CHARACTERS = 160


def line_of(span: tvm.ir.Span | None) -> str:
    """Return the file and line that a span names, such as `model.py:18`; empty for the span of a model's node."""
    if span is None or span.line <= 0:
        return ""
    file = str(span.source_name.name).replace("\\", "/").rsplit("/", 1)[-1]
    return f"{file}:{span.line}"


def lines_of(bindings: Iterable[relax.VarBinding]) -> dict[str, str]:
    """Return the lines of the bindings that have one, by the names of their variables."""
    return {binding.var.name: line for binding in bindings if (line := line_of(binding.value.span))}


def binding_text(binding: relax.Binding, line: str = "") -> str:
    """Return the text of a binding without its type, and its line: by default that of its span, if there is one."""
    value = binding.value
    if isinstance(value, relax.If):
        printed = f"R.If({getattr(value.cond, 'name', value.cond)})"
    elif isinstance(binding, relax.MatchCast):
        printed = f"R.match_cast({getattr(value, 'name', value)}, {binding.ty})"
    else:
        printed = str(value).strip().splitlines()[-1]  # the lines before declare the types of free variables
    text = f"{binding.var.name} = {printed}"
    text = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
    where = line or line_of(value.span)
    return f"{text} ({where})" if where else text


def blocking_binding(main: relax.Function) -> relax.Binding | None:
    """Return the binding that keeps a function from being a dataflow block, or None.

    It is the first control flow or match_cast, or without these the first binding outside of a dataflow block.
    """
    outside: list[relax.Binding] = []
    for block in main.body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, relax.VarBinding) or isinstance(binding.value, relax.If):
                return binding
            if not isinstance(block, relax.DataflowBlock):
                outside.append(binding)
    return outside[0] if outside else None
