"""Operators put on processors by hand: a pass in place of the one that weighs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm

from tvm_ext.compilation import pipeline
from tvm_ext.core.decisions.composites import OperatorProcessor, RowSplit, StreamDirection

Choose = Callable[[int, str], str]
"""Processor of an operator, by its position in the order and its composite's name.

Functions of the application stay on the first one, whatever it says, as do the rows of sequences that call them.
"""


def place_by_hand(monkeypatch: pytest.MonkeyPatch, choose: Choose) -> None:
    """Lets the pipeline take processors that a test chooses."""
    behind = pipeline.from_memory

    def placed(*arguments: object) -> list[tvm.transform.Pass]:
        return [_placing(choose), *behind(*arguments)]  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(pipeline, "from_memory", placed)


def _placing(choose: Choose) -> tvm.transform.Pass:
    @tvm.transform.module_pass(opt_level=0, name="PlaceByHand")
    def place(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        bindings = [binding for block in mod["main"].body.blocks for binding in block.bindings]
        callees = dict.fromkeys(
            b.value.op for b in bindings if isinstance(getattr(b.value, "op", None), tvm.ir.GlobalVar)
        )
        copied = tvm.IRModule(mod.functions, attrs=mod.attrs)
        sequences = {callee: RowSplit.read(mod[callee]).sequence for callee in callees}
        streamed = {callee for callee in callees if StreamDirection.read(mod[callee]).direction}
        first = {sequences[callee] for callee in streamed} - {""}
        chosen: dict[str, str] = {}
        for index, callee in enumerate(callees):
            processor = choose(index, callee.name_hint)
            if sequences[callee]:
                processor = chosen.setdefault(sequences[callee], processor)
            if callee in streamed or sequences[callee] in first:
                processor = ""
            copied.update_func(callee, OperatorProcessor(processor=processor).write(mod[callee]))
        return copied

    return place
