"""Timeline of a page: a row for each processor and the DMA, with bars where they compute, move bytes or wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_ext.report.page.drawing import count_text, layer_kind, shortened
from tvm_ext.report.read_report import Report
from tvm_ext.report.timeline import lanes_of, timeline_of

WIDTH = 900.0
ROW = 34.0
_LEAST = 1.0
"""Smallest width of a bar, so that a pointer can reach short steps."""


@dataclass(frozen=True, kw_only=True)
class TimelineBar:
    """Bar of a step on its lane. kind: name of its colour. facts: text of its tooltip."""

    x: float
    y: float
    width: float
    kind: str
    label: str
    facts: str


@dataclass(frozen=True, kw_only=True)
class TimelinePicture:
    """Timeline: lanes with the y of their rows, bars, ticks of the axis, and the height of the picture."""

    lanes: Sequence[tuple[str, float]]
    bars: Sequence[TimelineBar]
    ticks: Sequence[tuple[float, str]]
    height: float
    cycles: int


def timeline_picture(report: Report) -> TimelinePicture | None:
    """Return the timeline of a run on several lanes; None if one processor runs all steps in sequence."""
    slices = timeline_of(report)
    lanes = {lane: index * ROW for index, lane in enumerate(lanes_of(slices))}
    last = max((one.end for one in slices), default=0)
    if len(lanes) < 2 or not last:
        return None
    bars: list[TimelineBar] = []
    for one in slices:
        x, width = WIDTH * one.begin / last, WIDTH * (one.end - one.begin) / last
        title = f"waits for {one.step}" if one.doing == "waits" else f"{one.step}: {one.kernel}"
        bars.append(
            TimelineBar(
                x=round(x, 2), y=lanes[one.lane], width=round(max(width, _LEAST), 2),
                kind="waits" if one.doing == "waits" else layer_kind(one.kernel),
                label="" if one.doing == "waits" or width < 40 else shortened(one.step, width - 8),
                facts=f"{title}\n{one.end - one.begin:,} cycles, from {one.begin:,} to {one.end:,} on {one.lane}",
            )
        )  # fmt: skip
    return TimelinePicture(
        lanes=list(lanes.items()), bars=bars, height=len(lanes) * ROW, cycles=last,
        ticks=[(WIDTH * part / 6, count_text(last * part // 6)) for part in range(7)],
    )  # fmt: skip
