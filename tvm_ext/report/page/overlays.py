"""Arenas of a bundle over each other, as a page draws them: one bar per model, in the bytes they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_ext.report.read_report import Report

WIDTH = 760.0


@dataclass(frozen=True, kw_only=True)
class Overlaid:
    """A model's arena. x, width: in the picture's units, of WIDTH for all bytes of the memory's arenas."""

    model: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, kw_only=True)
class DrawnOverlay:
    """Arenas in one memory."""

    memory: str
    num_bytes: int
    saved_bytes: int
    models: Sequence[Overlaid]


def overlays_of(report: Report) -> list[DrawnOverlay]:
    """One for each memory in which models of a bundle have arenas."""
    return [
        DrawnOverlay(
            memory=one["memory"], num_bytes=one["num_bytes"], saved_bytes=one["saved_bytes"],
            models=[
                Overlaid(
                    model=arena["model"], x=round(arena["offset"] * WIDTH / max(one["num_bytes"], 1), 1),
                    width=round(max(arena["num_bytes"] * WIDTH / max(one["num_bytes"], 1), 1.5), 1),
                    text=f"{arena['num_bytes']:,} B at {arena['offset']:,}",
                )
                for arena in one["arenas"]
            ],
        )
        for one in report["arenas"]
    ]  # fmt: skip
