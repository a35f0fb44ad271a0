"""Budgets of a page: each memory's capacity, what may be taken, what is, and how near it is to the proved bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_ext.report.page.axes import bytes_text
from tvm_ext.report.page.placed_things import ShownArena, arenas_of
from tvm_ext.report.read_report import Report

WIDTH = 1000.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One memory. used, limit: widths in the picture's units, of WIDTH for its capacity; None for no limit below it.

    code: width of the program, behind the constants; 0 where it goes elsewhere, or several memories could hold it.
    """

    y: float
    name: str
    kind: str
    used: float
    code: float
    limit: float | None
    text: str
    notes: Sequence[str]
    is_over: bool


def budget_bars(report: Report) -> list[Bar]:
    """One bar for each memory of the platform, one below the other."""
    arenas = {arena.memory: arena for arena in arenas_of(report)} if "steps" in report else {}
    code_bytes = (report.get("code_bytes") or 0) if sum(one["kind"] == "rom" for one in report["memories"]) == 1 else 0
    bars: list[Bar] = []
    for memory in report["memories"]:
        y = bars[-1].y + (66 if bars[-1].notes else 46) if bars else 8
        bars.append(_bar(report, memory, arenas.get(memory["name"]), y, code_bytes if memory["kind"] == "rom" else 0))
    return bars


def _bar(report: Report, memory: Report, arena: ShownArena | None, y: float, code_bytes: int) -> Bar:
    used, capacity = memory["used_bytes"] or 0, max(memory["capacity_bytes"], 1)
    limit = arena.limit_bytes if arena else None
    if memory["kind"] == "rom":
        limit = report.get("fit", {}).get("flash_limit_bytes")
    shown = limit if limit is not None and limit < capacity else None
    parts = [f"{used:,} B of {bytes_text(capacity)}, {used / capacity:.1%}"]
    if code_bytes:
        parts.append(f"with {code_bytes:,} B of code {(used + code_bytes) / capacity:.1%}")
    if kept := memory.get("reserved_bytes"):
        parts.append(f"{bytes_text(kept)} are left to the application")
    if shown:
        parts.append(f"budget {shown:,} B, {shown - used:,} B of it free" if used <= shown else f"budget {shown:,} B")
    return Bar(
        y=y, name=memory["name"], kind=memory["kind"], used=round(min(used / capacity, 1) * WIDTH, 1),
        code=round(max(min((used + code_bytes) / capacity, 1) - min(used / capacity, 1), 0) * WIDTH, 1),
        limit=round(shown / capacity * WIDTH, 1) if shown else None, text="; ".join(parts),
        notes=[_bound(arena)] if arena and arena.lower_bound_bytes else [],
        is_over=used + code_bytes > (shown or capacity),
    )  # fmt: skip


def _bound(arena: ShownArena) -> str:
    """Sentence on the distance of an arena from the least that its tensors can do with."""
    bound, num_bytes = arena.lower_bound_bytes or 0, arena.num_bytes
    if num_bytes == bound:
        return f"The arena of {num_bytes:,} B is proved minimal: so many bytes are alive at one step."
    gap = f"The arena of {num_bytes:,} B is {(num_bytes - bound) / bound:.1%} above its lower bound of {bound:,} B"
    return f"{gap}; a search proved that no offsets need fewer." if arena.proved else f"{gap}."
