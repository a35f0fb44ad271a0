"""The memory map of a report as HTML that notebooks show inside of a cell: no script, no style sheet, names as text."""

from __future__ import annotations

from typing import Any

from tvm_ext.report.page.colours import KINDS, LIGHT
from tvm_ext.report.page.memory_picture import memory_picture
from tvm_ext.report.page.page import environment, visible
from tvm_ext.report.page.placed_things import WORDS, arenas_of, things_of

_MOST_THINGS = 1_000
"""Tensors of all maps together; of more the page of the report has them."""


def inline_maps(report: dict[str, Any]) -> str:
    """A picture of each arena; empty for a report without placed tensors, of very many, or a damaged one."""
    try:
        report = visible(report)
        things = things_of(report)
        if len(things) > _MOST_THINGS:
            return ""
        maps = [
            memory_picture(arena, [thing for thing in things if thing.memory == arena.memory], report["steps"])
            for arena in arenas_of(report)
        ]
        template = environment().get_template("inline_map.html.j2")
        return "".join(template.render(map=one, words=WORDS, colours=LIGHT, kinds=KINDS) for one in maps)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        return ""
