"""Timeline of a run: predicted begin and end of each step on its processor or DMA, for a page and as a trace.

The trace is in Chrome's Trace Event Format, which Perfetto and chrome://tracing open.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvm_ext.report.read_report import Report

DMA = "DMA"
"""Lane of transfers that run while a processor computes."""
Doing = Literal["computes", "moves", "waits"]


@dataclass(frozen=True, kw_only=True)
class TimeSlice:
    """Cycles [begin, end) that a lane spends on a step. lane: a processor or the DMA. kernel: empty while it waits."""

    lane: str
    step: str
    kernel: str
    doing: Doing
    begin: int
    end: int


@dataclass(frozen=True, kw_only=True)
class _Bytes:
    """Bytes [begin, end) of a memory."""

    memory: str
    begin: int
    end: int


class _LastWrites:
    """The time at which each byte of the memories was last written, by ranges that no tensor divides."""

    def __init__(self, spans: Iterable[_Bytes]) -> None:
        edges: dict[str, set[int]] = {}
        for span in spans:
            edges.setdefault(span.memory, set()).update((span.begin, span.end))
        self._edges = {memory: sorted(inside) for memory, inside in edges.items()}
        self._times = {memory: [0] * len(inside) for memory, inside in edges.items()}

    def write(self, span: _Bytes, end: int) -> None:
        times, ranges = self._times[span.memory], self._ranges(span)
        times[ranges] = [max(time, end) for time in times[ranges]]

    def latest(self, span: _Bytes) -> int:
        return max(self._times[span.memory][self._ranges(span)], default=0)

    def _ranges(self, span: _Bytes) -> slice:
        edges = self._edges[span.memory]
        return slice(bisect_left(edges, span.begin), bisect_left(edges, span.end))


def timeline_of(report: Report) -> list[TimeSlice]:
    """Return the slices of a run in the order of its steps.

    A step begins when its processor is free and the bytes that the step reads are written. A DMA transfer begins when
    its processor reaches the transfer and the DMA is free, and it occupies only the DMA. Until then a processor waits.
    A sequence begins before the bytes arrive that it awaits between its calls.
    If a model has branches, the run takes those with the most cycles.
    """
    places = _places(report)
    free: dict[str, int] = {}
    written = _LastWrites(places.values())
    slices: list[TimeSlice] = []
    for step in report["steps"]:
        if step.get("in_worst_case") is False:
            continue
        processor, cycles = step.get("processor", "cpu"), int(step.get("predicted_cycles") or 0)
        writes = [places[out["c_name"]] for out in step["outputs"] if out["c_name"] in places]
        inside = [name for name in step.get("awaited_inside", ()) if name in places]
        reads = [places[name] for name in step.get("reads", ()) if name in places and name not in inside]
        needed = writes if step["kernel"] == "wait" else reads
        ready = max(map(written.latest, needed), default=0)
        now = free.get(processor, 0)
        lane = DMA if step["kernel"] == "dma" else processor
        begin = max(now, ready, free.get(lane, 0))
        if lane != DMA and begin > now:
            slices.append(TimeSlice(lane=lane, step=step["name"], kernel="", doing="waits", begin=now, end=begin))
        if step["kernel"] == "wait":
            free[processor] = begin
            continue
        end = free[lane] = max([begin + cycles, *(written.latest(places[name]) for name in inside)])
        doing: Doing = "moves" if step["kernel"] in ("dma", "copy") else "computes"
        slices.append(TimeSlice(lane=lane, step=step["name"], kernel=step["kernel"], doing=doing, begin=begin, end=end))
        for span in writes:
            written.write(span, end)
    return slices


def _places(report: Report) -> dict[str, _Bytes]:
    return {
        one["c_name"]: _Bytes(memory=one["memory"], begin=one["offset"], end=one["offset"] + one["num_bytes"])
        for one in report.get("tensors", ())
        if one.get("memory")
    }


def lanes_of(slices: Sequence[TimeSlice]) -> list[str]:
    """Return the lanes in the order of their first slices, the DMA last."""
    lanes = list(dict.fromkeys(one.lane for one in slices))
    return sorted(lanes, key=lambda lane: (lane == DMA, lanes.index(lane)))


def trace_of(name: str, slices: Sequence[TimeSlice], clock_hz: int) -> dict[str, Any]:
    """Return the timeline as a trace with a thread for each lane and times in microseconds at the platform's clock."""
    lanes = {lane: number for number, lane in enumerate(lanes_of(slices), 1)}
    names = [
        {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": lane}}
        for lane, number in lanes.items()
    ]
    events = [
        {
            "ph": "X", "pid": 1, "tid": lanes[one.lane], "cat": one.doing,
            "name": f"wait for {one.step}" if one.doing == "waits" else one.step,
            "ts": one.begin * 1e6 / clock_hz, "dur": (one.end - one.begin) * 1e6 / clock_hz,
            "args": {"kernel": one.kernel, "cycles": one.end - one.begin},
        }
        for one in slices
    ]  # fmt: skip
    process = {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": name}}
    about = {"model": name, "times": "predicted, not measured", "clock_hz": clock_hz}
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": [process, *names, *events]}
