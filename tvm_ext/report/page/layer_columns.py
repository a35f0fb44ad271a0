"""Layers of a page: one row for each step, a column for each figure that its report has; and bars of what they cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_ext.report.page.grid import Grid, GridCell, number_cell
from tvm_ext.report.page.labels import shortened
from tvm_ext.report.page.layer_kinds import layer_kind
from tvm_ext.report.read_report import Report

_KNOWN = frozenset(
    {
        "index", "name", "source_nodes", "kernel", "macs", "modelled_instructions", "predicted_cycles", "alternatives",
        "reads", "processor", "scratch_bytes", "live_bytes", "outputs", "grown_weights",
    }
)  # fmt: skip
"""Keys of a step that have a column of their own, or none."""
BAR_WIDTH = 480.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A layer's share of a run. width: of BAR_WIDTH, for the dearest layer."""

    name: str
    short: str
    kernel: str
    kind: str
    width: float
    text: str


def layer_grid(report: Report) -> Grid:
    """One row per step: names, kernel, processor, memories, figures; columns that other builds bring at the end."""
    steps: list[Report] = report["steps"]
    several = len({step.get("processor") for step in steps}) > 1
    columns: list[tuple[str, Callable[[Mapping[str, Any]], GridCell]]] = [
        ("#", lambda step: number_cell(step["index"])),
        ("layer", lambda step: GridCell(text=step["name"], more=", ".join(step["source_nodes"]))),
        ("kernel", lambda step: GridCell(text=step["kernel"])),
        *([("processor", lambda step: GridCell(text=step["processor"]))] if several else []),
        ("memories", lambda step: GridCell(text=_memories(step))),
        ("writes", lambda step: GridCell(text=_shapes(step))),
        ("MACs", lambda step: number_cell(step["macs"])),
        ("instructions, modelled", lambda step: number_cell(step.get("modelled_instructions"))),
        ("cycles, predicted", lambda step: number_cell(step.get("predicted_cycles"))),
        ("RAM alive, B", lambda step: number_cell(step.get("live_bytes"))),
        ("scratch, B", lambda step: number_cell(step["scratch_bytes"])),
    ]
    flat = [_others(step) for step in steps]
    for key in dict.fromkeys(key for one in flat for key in one):
        columns.append((_heading(key), lambda step, key=key: _any_cell(_others(step).get(key))))
    return Grid(
        title="", headings=[heading for heading, _ in columns],
        rows=[[make(step) for _, make in columns] for step in steps],
    )  # fmt: skip


def costs(report: Report) -> tuple[str, Sequence[Cost]]:
    """Unit, and a bar per step: predicted cycles, which every report has; modelled instructions of older ones."""
    steps: list[Report] = report["steps"]
    key, unit = "predicted_cycles", "cycles, predicted"
    if not any(step.get(key) for step in steps):
        key, unit = "modelled_instructions", "instructions, modelled"
    amounts = [step.get(key) or 0 for step in steps]
    names = [f"{step['index']} {step['name']}" for step in steps]
    total, most = max(sum(amounts), 1), max(amounts, default=0) or 1
    return unit, [
        Cost(
            name=name, short=shortened(name, 380), kernel=step["kernel"],
            kind=layer_kind(step["kernel"]), width=round(BAR_WIDTH * amount / most, 1),
            text=f"{amount:,}, {amount / total:.1%}",
        )
        for step, amount, name in zip(steps, amounts, names, strict=True)
        if step["kernel"] != "wait" or amount
    ]  # fmt: skip


def _memories(step: Mapping[str, Any]) -> str:
    places = [output["memory"] or "the caller's" for output in step["outputs"]]
    return ", ".join(dict.fromkeys(places)) or "-"


def _shapes(step: Mapping[str, Any]) -> str:
    return ", ".join(f"{out['dtype']}[{','.join(map(str, out['shape']))}]" for out in step["outputs"])


def _others(step: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of a step that later versions bring: numbers and texts, those of tables in it by both names."""
    found: dict[str, Any] = {}
    for key, value in step.items():
        if key in _KNOWN:
            continue
        inner: Mapping[str, Any] = value if isinstance(value, dict) else {"": value}
        for name, one in inner.items():
            if one is None or isinstance(one, int | float | str):
                found[f"{key}_{name}" if name else key] = one
    return found


def _heading(key: str) -> str:
    words = key.replace("_", " ")
    return f"{words.removesuffix(' bytes')}, B" if words.endswith(" bytes") else words


def _any_cell(value: Any) -> GridCell:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return GridCell(text="-" if value is None else str(value))
    return number_cell(value)
