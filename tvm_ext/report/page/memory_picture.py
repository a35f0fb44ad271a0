"""Memory maps: tensors by offset and step, and the overlaid arenas of a bundle."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_ext.report.page.drawing import (
    FONT,
    KINDS,
    Rect,
    TextLabel,
    byte_ticks,
    bytes_text,
    label_in,
    shortened,
    spread,
    text_width,
)
from tvm_ext.report.read_report import Report

WIDTH, HEIGHT = 900.0, 400.0
"""Size of the plot inside its axes, in the picture's units."""
LEFT, RIGHT, TOP, BOTTOM = 84.0, 190.0, 26.0, 46.0
_FAR = 2.2
_MOST_PAIRS = 2_000
_MOST_TICK = 104.0
"""Largest width of a step's name below the axis."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A tensor in the map. facts: text of its tooltip. label: its name; None if there is no room for it."""

    name: str
    kind: str
    area: Rect
    facts: str
    is_part: bool
    label: TextLabel | None


@dataclass(frozen=True, kw_only=True)
class Line:
    """Horizontal line of a size: the arena, its lower bound or its budget, with a text at its right end."""

    kind: str
    y: float
    text: str
    text_y: float


@dataclass(frozen=True, kw_only=True)
class MemoryPicture:
    """Map of one memory.

    shared: areas where several tensors share bytes.
    live: points of the line of live bytes, as text of SVG.
    peak: the step with the most live bytes.
    notes: sentences about sizes outside of the picture.
    """

    title: str
    boxes: Sequence[Box]
    shared: Sequence[Rect]
    lines: Sequence[Line]
    live: str
    peak: Rect | None
    peak_label: TextLabel | None
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[tuple[float, str]]
    kinds: Sequence[str]
    notes: Sequence[str]


def memory_picture(arena: ShownArena, things: Sequence[Thing], steps: Sequence[Mapping[str, Any]]) -> MemoryPicture:
    """Return the map of one arena. things: the tensors in the arena."""
    count = max(len(steps), 1)
    top = max(arena.num_bytes, *(thing.offset + thing.num_bytes for thing in things), 1)
    limit = arena.limit_bytes
    is_near = limit is not None and limit <= _FAR * top
    top = max(top, limit if limit is not None and is_near else 0) * 1.06

    def y(num_bytes: float) -> float:
        return round(HEIGHT * (1 - num_bytes / top), 2)

    def x(step: float) -> float:
        return round(WIDTH * step / count, 2)

    def area(thing: Thing) -> Rect:
        upper = y(thing.offset + thing.num_bytes)
        return Rect(
            x=x(thing.begin), y=upper, width=round(x(thing.end) - x(thing.begin), 2),
            height=round(y(thing.offset) - upper, 2),
        )  # fmt: skip

    order = sorted(things, key=lambda thing: (thing.part_of is not None, -thing.work, thing.c_name))
    areas = [area(thing) for thing in order]
    shared = _shared(areas)
    peak = arena.peak_step if arena.peak_step is not None and arena.peak_step < len(steps) else None
    band = None if peak is None else Rect(x=x(peak), y=0, width=round(x(peak + 1) - x(peak), 2), height=HEIGHT)
    every = max(1, -(-count // 24))
    return MemoryPicture(
        title=arena.title,
        boxes=_boxes(order, areas, shared),
        shared=shared,
        lines=_lines(arena, y, is_near=is_near),
        live=" ".join(f"{x(i)},{y(value)} {x(i + 1)},{y(value)}" for i, value in enumerate(arena.live_bytes)),
        peak=band,
        peak_label=_peak_label(band, steps[peak]) if band and peak is not None else None,
        x_ticks=[(x(step + 0.5), _step_label(steps, step)) for step in range(0, count, every)],
        y_ticks=[(y(value), bytes_text(value)) for value in byte_ticks(top)],
        kinds=list(dict.fromkeys(thing.kind for thing in order)),
        notes=[] if limit is None or is_near else [f"Budget {limit:,} B, far above the picture."],
    )  # fmt: skip


def _step_label(steps: Sequence[Mapping[str, Any]], step: int) -> str:
    """Return number and name of a step for the axis."""
    name = str(steps[step]["name"]) if step < len(steps) else ""
    return shortened(f"{step} {name}", _MOST_TICK)


def _shared(areas: Sequence[Rect]) -> list[Rect]:
    """Return the areas that two tensors share: a kernel overwrites its input, or one tensor is part of the other."""
    if len(areas) > _MOST_PAIRS:
        return []
    overlaps: dict[tuple[float, float, float, float], Rect] = {}
    for index, one in enumerate(areas):
        for other in areas[index + 1 :]:
            both = one.common(other)
            if both and both.width > 0.1 and both.height > 0.1:
                overlaps.setdefault((both.x, both.y, both.width, both.height), both)
    return list(overlaps.values())


def _boxes(things: Sequence[Thing], areas: Sequence[Rect], shared: Sequence[Rect]) -> list[Box]:
    """Return the boxes in the order in which they are drawn. The largest tensors get their labels first."""
    taken: list[Rect] = []
    boxes: list[Box] = []
    for thing, area in zip(things, areas, strict=True):
        label = label_in(thing.label, area, taken, shared)
        if label:
            taken.append(label.area)
        boxes.append(
            Box(
                name=thing.c_name,
                kind=thing.kind,
                area=area,
                facts=thing.facts,
                label=label,
                is_part=thing.part_of is not None,
            )
        )
    return boxes


def _lines(arena: ShownArena, y: Any, *, is_near: bool) -> list[Line]:
    """Return the lines of sizes, with texts beside the plot that do not overlap."""
    sizes = [("arena", arena.num_bytes, "arena")]
    bound = arena.lower_bound_bytes
    if bound is not None and bound != arena.num_bytes:
        sizes.append(("bound", bound, "lower bound"))
    elif bound:
        sizes = [("arena", arena.num_bytes, "arena = lower bound")]
    if arena.limit_bytes is not None and is_near:
        sizes.append(("limit", arena.limit_bytes, "budget"))
    places = spread([y(size) + 4 for _, size, _ in sizes], FONT + 3, FONT, HEIGHT)
    return [
        Line(kind=kind, y=y(size), text=f"{words} {size:,} B", text_y=round(place, 2))
        for (kind, size, words), place in zip(sizes, places, strict=True)
    ]


def _peak_label(band: Rect, step: Mapping[str, Any]) -> TextLabel | None:
    """Return the name of the step with the most live bytes, above its band and inside the plot's width."""
    text = shortened(f"peak: step {step['index']}, {step['name']}", WIDTH * 0.6)
    width = text_width(text)
    x = min(max(0.0, band.x + band.width / 2 - width / 2), WIDTH - width)
    return TextLabel(text=text, area=Rect(x=round(x, 2), y=-FONT - 9, width=width, height=FONT + 3))


WORDS = {
    "input": "input",
    "output": "output",
    "intermediate": "activation",
    "weights": "copy of weights",
    "copy": "activation moved from another memory",
    "state": "state, kept from run to run",
    "scratch": "scratch of a kernel",
}
"""Texts of the legend for the kinds of tensors."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A tensor or scratch buffer: bytes [offset, offset + num_bytes) of a memory in the steps [begin, end)."""

    c_name: str
    label: str
    kind: str
    memory: str
    offset: int
    num_bytes: int
    begin: int
    end: int
    part_of: str | None
    facts: str

    @property
    def work(self) -> int:
        """Bytes times steps, which is proportional to the area in the map."""
        return self.num_bytes * (self.end - self.begin)


@dataclass(frozen=True, kw_only=True)
class ShownArena:
    """Arena of a memory: its size, lower bound and budget."""

    memory: str
    title: str
    num_bytes: int
    lower_bound_bytes: int | None
    limit_bytes: int | None
    peak_step: int | None
    live_bytes: Sequence[int]
    proved: bool


def arenas_of(report: Report) -> list[ShownArena]:
    """Return the arenas of a report, the arena of the default memory first.

    An older report has no arenas; their sizes are then computed from the tensors.
    """
    entries: list[Report] = report.get("arenas") or []
    if entries:
        return [
            ShownArena(
                memory=one["memory"], title=_title(one["memory"], one["inside"]), num_bytes=one["num_bytes"],
                lower_bound_bytes=one["lower_bound_bytes"], limit_bytes=one["limit_bytes"],
                peak_step=one["peak_step"], live_bytes=one["live_bytes"], proved=one["proved"],
            )
            for one in entries
        ]  # fmt: skip
    sizes: dict[str, int] = {}
    for thing in things_of(report):
        sizes[thing.memory] = max(sizes.get(thing.memory, 0), thing.offset + thing.num_bytes)
    return [
        ShownArena(
            memory=memory, title=memory, num_bytes=size, lower_bound_bytes=None, limit_bytes=None, peak_step=None,
            live_bytes=(), proved=False,
        )
        for memory, size in sizes.items()
    ]  # fmt: skip


def _title(memory: str, inside: str) -> str:
    return memory if memory == inside else f"{memory}, in {inside}"


def things_of(report: Report) -> list[Thing]:
    """Return all tensors and scratch buffers that have an offset in a report."""
    makers: dict[str, str] = {}
    readers: dict[str, str] = {}
    for step in report["steps"]:
        for tensor in step["outputs"]:
            makers.setdefault(tensor["c_name"], step["name"])
        for name in step.get("reads", ()):
            readers[name] = step["name"]
    if "tensors" in report:
        return [_thing(one, makers, readers) for one in report["tensors"]]
    outputs = [tensor | {"of": step} for step in report["steps"] for tensor in step["outputs"]]
    placed = {tensor["c_name"]: tensor for tensor in outputs if tensor.get("memory") is not None}
    return [_thing(_completed(tensor), makers, readers) for tensor in placed.values()]


def _completed(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output of a step with the keys that an older report does not have."""
    bits = re.search(r"\d+", tensor["dtype"])
    num_bytes = math.prod(tensor["shape"]) * (int(bits[0]) if bits else 8) // 8
    kind = "copy" if tensor["of"]["kernel"] in ("dma", "copy", "wait") else "intermediate"
    return {**tensor, "num_bytes": num_bytes, "kind": kind, "part_of": None}


def _thing(one: Mapping[str, Any], makers: Mapping[str, str], readers: Mapping[str, str]) -> Thing:
    name, kind = one["c_name"], one["kind"] if one["kind"] in KINDS else "intermediate"
    begin, end, offset, size = (int(one[key]) for key in ("begin", "end", "offset", "num_bytes"))
    source = one.get("name")
    lines = [
        name if source in (None, name) else f"{name} ({source})",
        WORDS[kind] + (f", {one['dtype']}[{', '.join(map(str, one['shape']))}]" if one.get("dtype") else ""),
        f"{size:,} B at offset {offset:,}, up to {offset + size:,}",
        "in every step" if kind == "state" else f"steps {begin} to {end - 1}",
        f"written by {makers[name]}" if name in makers else "",
        f"last read by {readers[name]}" if name in readers else "",
        f"part of {one['part_of']}" if one.get("part_of") else "",
    ]
    return Thing(
        c_name=name, label=name, kind=kind, memory=one["memory"], offset=offset, num_bytes=size, begin=begin, end=end,
        part_of=one.get("part_of"), facts="\n".join(filter(None, lines)),
    )  # fmt: skip


OVERLAY_WIDTH = 760.0


@dataclass(frozen=True, kw_only=True)
class Overlaid:
    """A model's arena in a bundle. x, width: in the picture's units; all overlaid bytes have OVERLAY_WIDTH."""

    model: str
    x: float
    width: float
    text: str


@dataclass(frozen=True, kw_only=True)
class DrawnOverlay:
    """Overlaid arenas of a bundle in one memory."""

    memory: str
    num_bytes: int
    saved_bytes: int
    models: Sequence[Overlaid]


def overlays_of(report: Report) -> list[DrawnOverlay]:
    """Return the overlaid arenas of each memory in which models of a bundle have arenas."""
    return [
        DrawnOverlay(
            memory=one["memory"], num_bytes=one["num_bytes"], saved_bytes=one["saved_bytes"],
            models=[
                Overlaid(
                    model=arena["model"], x=round(arena["offset"] * OVERLAY_WIDTH / max(one["num_bytes"], 1), 1),
                    width=round(max(arena["num_bytes"] * OVERLAY_WIDTH / max(one["num_bytes"], 1), 1.5), 1),
                    text=f"{arena['num_bytes']:,} B at {arena['offset']:,}",
                )
                for arena in one["arenas"]
            ],
        )
        for one in report["arenas"]
    ]  # fmt: skip
