"""memory_map.html of a package: who lies where in which memory, and when, as a picture to look at and point into."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement, peak_placements
from codegen_c.emit.templates import render
from codegen_c.program.program import Program, Step, writes

WIDTH, HEIGHT = 1080.0, 420.0
"""Size of the plot inside its axes, in the picture's own units."""
_CHARACTER = 6.2
_TICKS = 8


@dataclass(frozen=True, kw_only=True)
class _Box:
    """One tensor: rectangle, kind, what its label and its hover text say."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    label: str
    label_y: float
    facts: str


def emit_memory_map(model: str, program: Program, plan: MemoryPlan, live: Mapping[str, Sequence[int]]) -> str:
    """Text of memory_map.html, which needs no other file. live: what `live_profile` gives."""
    steps = max(len(program.steps), 1)
    memories = [
        _memory(program, plan, arena, list(live[arena.memory]), steps) for arena in plan.arenas if arena.num_bytes
    ]
    return render("memory_map.html.j2", model=_visible(model), memories=memories, width=WIDTH, height=HEIGHT)


def _memory(program: Program, plan: MemoryPlan, arena: Arena, live: list[int], steps: int) -> dict[str, object]:
    top = max(arena.num_bytes, *live) * 1.06
    places = [place for place in plan.placements.values() if place.memory == arena.memory]
    makers = {name: step for step in reversed(program.steps) for name in writes(step)}

    def y(num_bytes: float) -> float:
        return round(HEIGHT * (1 - num_bytes / top), 2)

    def x(step: float) -> float:
        return round(WIDTH * step / steps, 2)

    curve = " ".join(f"{x(i)},{y(value)} {x(i + 1)},{y(value)}" for i, value in enumerate(live))
    every = max(1, -(-steps // 16))
    return {
        "name": _visible(f"{arena.memory}, in {arena.home}" if arena.home else arena.memory),
        "is_state": bool(arena.home),
        "num_bytes": arena.num_bytes,
        "bound": arena.lower_bound_bytes,
        "arena_y": y(arena.num_bytes),
        "bound_y": y(arena.lower_bound_bytes),
        "peak": arena.peak_step,
        "peak_name": _visible(program.steps[arena.peak_step].name) if program.steps else "",
        "peak_x": x(arena.peak_step),
        "step_width": x(1),
        "boxes": [
            _box(
                program,
                place,
                makers.get(place.name),
                (x(place.begin), x(place.end)),
                (y(place.offset), y(_end(place))),
            )
            for place in sorted(places, key=lambda p: (-(p.end - p.begin) * p.num_bytes, p.name))
        ],
        "curve": curve,
        "x_ticks": [{"at": x(step + 0.5), "text": step} for step in range(0, steps, every)],
        "y_ticks": [{"at": y(value), "text": f"{value:,}"} for value in _round_values(int(top))],
        "at_peak": [_row(program, place, makers.get(place.name)) for place in peak_placements(plan, arena)],
    }


def _end(place: Placement) -> int:
    return place.offset + place.num_bytes


def _box(
    program: Program, place: Placement, maker: Step | None, across: tuple[float, float], up: tuple[float, float]
) -> _Box:
    row = _row(program, place, maker)
    width, height = round(across[1] - across[0], 2), round(up[0] - up[1], 2)
    room = int((width - 8) / _CHARACTER)
    name = row["name"]
    label = "" if height < 13 or room < 3 else name if len(name) <= room else name[: room - 1] + "…"
    facts = "\n".join(
        line
        for line in (
            name if name == row["source"] or not row["source"] else f"{name} ({row['source']})",
            row["type"],
            row["made_by"],
            f"{place.num_bytes:,} bytes at offset {place.offset:,}",
            "kept from run to run" if row["kind"] == "state" else f"steps {place.begin} to {place.end - 1}",
        )
        if line
    )
    # Inputs and outputs lie over what they share bytes with: their labels stand at the other end.
    below = min(height / 2 + 4, 16) if row["kind"] in ("inner", "scratch", "state") else max(height / 2 + 4, height - 6)
    return _Box(
        kind=row["kind"], x=across[0], y=up[1], width=width, height=height, label=label,
        label_y=round(up[1] + below, 2), facts=facts,
    )  # fmt: skip


def _row(program: Program, place: Placement, maker: Step | None) -> dict[str, str]:
    """Facts about a tensor, as text that is safe to show once it is escaped."""
    lifetime = f"{place.begin} to {place.end - 1}"
    common = {"bytes": f"{place.num_bytes:,}", "offset": f"{place.offset:,}", "steps": lifetime}
    if place.is_scratch:
        return common | {
            "kind": "scratch",
            "name": _visible(place.name),
            "source": "",
            "type": "scratch",
            "made_by": "",
        }
    tensor = program.tensors[place.name]
    kept = next((state.source for state in program.states if state.tensor == place.name), tensor.source)
    return common | {
        "kind": _role(program, place.name),
        "name": _visible(place.name),
        "source": _visible(kept),
        "type": f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]",
        "made_by": f"made by {_visible(maker.name)}" if maker else "",
    }


def _role(program: Program, name: str) -> str:
    if program.tensors[name].role == "state":
        return "state"
    return "output" if name in program.outputs else "input" if name in program.inputs else "inner"


def _round_values(top: int) -> list[int]:
    """0 and multiples of a round number of bytes, not more than about `_TICKS`."""
    unit = next(
        (size * factor for size in (1 << k for k in range(0, 60, 10)) for factor in (1 << k for k in range(10))
         if top / (size * factor) <= _TICKS),
        top,
    )  # fmt: skip
    return list(range(0, top + 1, unit))


def _visible(text: str) -> str:
    """Text with control characters and lone surrogates replaced: no document may hold them."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
