"""The page profile.html: a flame graph of estimated cycles, a bar of their kinds for each layer, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from tvm_ext.profiling.profile import NOTE, WAITS, LayerProfile, Profile

WIDTH = 1080.0
"""Width of the pictures in SVG units."""
_ROW = 26.0
_CHARACTER = 6.4
_GROUPS = (
    ("compute", ("alu", "barrier", "float", "double", "vector")),
    ("divide", ("divide", "float_divide", "float_root", "double_divide")),
    ("multiply", ("multiply", "multiply_long", "float_multiply", "float_mac", "vector_multiply")),
    ("load", ("load", "load_double", "load_multiple", "float_load", "float_load_multiple", "vector_load")),
    ("store", ("store", "store_double", "store_multiple", "float_store", "float_store_multiple", "vector_store")),
    ("branch", ("branch", "loop")),
    ("wait", (WAITS,)),
)  # fmt: skip
"""Classes of instructions that share a colour in the bars."""


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """A rectangle of a picture: its row, its position and width in SVG units, its label, and its tooltip `facts`."""

    row: int
    x: float
    width: float
    label: str
    facts: str
    group: str


def profile_page(profile: Profile) -> str:
    """Return the text of profile.html, which needs no other file."""
    template = (Path(__file__).parent / "profile.html.j2").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        profile=profile, note=NOTE, width=WIDTH, row_height=_ROW, frames=_frames(profile), bars=_bars(profile),
        groups=[group for group, _ in _GROUPS], memories=list(profile.memories()),
    )  # fmt: skip


def _frames(profile: Profile) -> list[_Frame]:
    """Return the frames of the flame graph: the model, below it its layers, and below each layer its functions."""
    total = profile.cycles or 1.0
    facts = f"{profile.model}: {_facts(profile, profile.cycles, profile.num_instructions)}"
    frames = [_frame(0, 0.0, WIDTH, profile.model, facts, "model")]
    begin = 0.0
    for layer in profile.layers:
        x, width = WIDTH * begin / total, WIDTH * layer.cycles / total
        facts = f"{layer.name}: {_facts(profile, layer.cycles, layer.num_instructions)}"
        frames.append(_frame(1, x, width, layer.name, facts, "layer"))
        inside = begin
        for function in layer.functions:
            cycles = sum(function.cycles.values())
            facts = f"{function.name} in {layer.name}: {_facts(profile, cycles, function.instructions)}"
            x, width = WIDTH * inside / total, WIDTH * cycles / total
            frames.append(_frame(2, x, width, function.name, facts, "function"))
            inside += cycles
        begin += layer.cycles
    return frames


def _bars(profile: Profile) -> list[tuple[LayerProfile, Sequence[_Frame]]]:
    """Return a bar for each layer, divided by group; the bar of the longest layer fills the width."""
    longest = max((layer.cycles for layer in profile.layers), default=0.0) or 1.0
    bars: list[tuple[LayerProfile, Sequence[_Frame]]] = []
    for row, layer in enumerate(profile.layers):
        kinds, x, parts = layer.cycles_by_kind(), 0.0, list[_Frame]()
        for group, members in _GROUPS:
            cycles = sum(kinds.get(kind, 0.0) for kind in members)
            width = WIDTH * cycles / longest
            parts.append(_frame(row, x, width, f"{cycles:,.0f}", f"{layer.name}, {group}: {cycles:,.0f} cycles", group))
            x += width
        bars.append((layer, parts))
    return bars


def _frame(row: int, x: float, width: float, label: str, facts: str, group: str) -> _Frame:
    """Return a frame whose label is shortened to fit, or empty if only a few characters fit."""
    room = int(width / _CHARACTER) - 1
    shown = label if len(label) <= room else f"{label[: room - 1]}…" if room > 3 else ""
    return _Frame(row=row, x=round(x, 2), width=round(max(width, 0.0), 2), label=shown, facts=facts, group=group)


def _facts(profile: Profile, cycles: float, instructions: int) -> str:
    share = cycles / profile.cycles if profile.cycles else 0.0
    time = f"{profile.milliseconds(cycles):,.3f} ms"
    return f"{cycles:,.0f} cycles estimated ({share:.1%}, {time}), {instructions:,} instructions executed"
