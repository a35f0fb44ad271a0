"""Tables of a page: titles, headings and cells; the table of layers; bars of memory budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tvm_ext.report.page.drawing import bytes_text, layer_kind, shortened
from tvm_ext.report.page.memory_picture import ShownArena, arenas_of
from tvm_ext.report.read_report import Report


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """Text of a cell. more: text of its tooltip. mark: `good` or `bad` for a verdict, else empty."""

    text: str
    is_number: bool = False
    more: str = ""
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table. notes: sentences below it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[GridCell]]
    notes: Sequence[str] = ()

    def is_number(self, column: int) -> bool:
        """Return True if a cell of the column is a number."""
        return any(row[column].is_number for row in self.rows)


def number_cell(value: float | None, unit: str = "") -> GridCell:
    """Return a cell with a number with thousands separators, or a dash for None."""
    if value is None:
        return GridCell(text="-", is_number=True)
    return GridCell(text=f"{value:,}{unit}" if isinstance(value, int) else f"{value:,.4g}{unit}", is_number=True)


_MARKS = {"green": "good", "bold red": "bad", "yellow": "bad"}


def grids_of(tables: list[RenderableType]) -> list[Grid]:
    """Return a grid for each table. Texts after a table become its notes."""
    grids: list[Grid] = []
    for part in _parts(tables):
        if isinstance(part, Table):
            grids.append(_grid(part))
        elif grids:
            last = grids.pop()
            grids.append(Grid(title=last.title, headings=last.headings, rows=last.rows, notes=(*last.notes, part)))
        else:
            grids.append(Grid(title="", headings=(), rows=(), notes=(part,)))
    return grids


def _parts(tables: list[RenderableType]) -> Iterator[Table | str]:
    for table in tables:
        if isinstance(table, Group):
            yield from _parts(table.renderables)
        elif isinstance(table, Panel):
            yield from _parts([table.renderable])
        elif isinstance(table, Table):
            yield table
        elif isinstance(table, Text):
            yield table.plain


def _grid(table: Table) -> Grid:
    cells = [list(map(_text, column.cells)) for column in table.columns]
    rows = [
        [
            GridCell(text=text.plain, is_number=column.justify == "right", mark=_MARKS.get(str(text.style), ""))
            for text, column in zip(row, table.columns, strict=True)
        ]
        for row in zip(*cells, strict=True)
    ]
    headings = [_text(column.header).plain for column in table.columns] if table.show_header else []
    return Grid(title=_text(table.title or "").plain, headings=headings, rows=rows)


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text.from_markup(str(cell))


_KNOWN = frozenset(
    {
        "index", "name", "source_nodes", "kernel", "macs", "modelled_instructions", "predicted_cycles", "alternatives",
        "reads", "processor", "scratch_bytes", "live_bytes", "outputs", "grown_weights", "guards", "in_worst_case",
    }
)  # fmt: skip
"""Keys of a step that have their own column or are not shown. All other keys get a column at the end."""
BAR_WIDTH = 480.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A layer's share of a run, as a bar. width: width of the bar; the largest share has BAR_WIDTH."""

    name: str
    short: str
    kernel: str
    kind: str
    width: float
    text: str


def layer_grid(report: Report) -> Grid:
    """Return a table with one row for each step: names, kernel, processor, memories, numbers.

    Keys of other versions of the report have columns at the end.
    """
    steps: list[Report] = report["steps"]
    several = len({step.get("processor") for step in steps}) > 1
    columns: list[tuple[str, Callable[[Mapping[str, Any]], GridCell]]] = [
        ("#", lambda step: number_cell(step["index"])),
        ("layer", lambda step: GridCell(text=step["name"], more=", ".join(step["source_nodes"]))),
        ("kernel", lambda step: GridCell(text=step["kernel"])),
        *([("runs if", lambda step: GridCell(text=_condition(step)))] if any("guards" in one for one in steps) else []),
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
    """Return the unit and a bar for each step: predicted cycles, or modelled instructions for older reports.

    Shares are of a run that takes the branches with the most cycles.
    """
    steps: list[Report] = report["steps"]
    key, unit = "predicted_cycles", "cycles, predicted"
    if not any(step.get(key) for step in steps):
        key, unit = "modelled_instructions", "instructions, modelled"
    amounts = [step.get(key) or 0 for step in steps]
    names = [f"{step['index']} {step['name']}" for step in steps]
    is_counted = [step.get("in_worst_case", True) for step in steps]
    total = max(sum(amount for amount, counts in zip(amounts, is_counted, strict=True) if counts), 1)
    most = max(amounts, default=0) or 1
    return unit, [
        Cost(
            name=name, short=shortened(name, 380), kernel=step["kernel"],
            kind=layer_kind(step["kernel"]), width=round(BAR_WIDTH * amount / most, 1),
            text=f"{amount:,}, {f'{amount / total:.1%}' if counts else 'not in the worst case'}",
        )
        for step, amount, name, counts in zip(steps, amounts, names, is_counted, strict=True)
        if step["kernel"] != "wait" or amount
    ]  # fmt: skip


def _condition(step: Mapping[str, Any]) -> str:
    """Return the conditions for which a step of a branch runs; a dash for a step that always runs."""
    guards: list[Report] = step.get("guards", [])
    return " and ".join(f"{'' if one['holds'] else 'not '}{one['condition']}" for one in guards) or "-"


def _memories(step: Mapping[str, Any]) -> str:
    places = [output["memory"] or "the caller's" for output in step["outputs"]]
    return ", ".join(dict.fromkeys(places)) or "-"


def _shapes(step: Mapping[str, Any]) -> str:
    return ", ".join(f"{out['dtype']}[{','.join(map(str, out['shape']))}]" for out in step["outputs"])


def _others(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers and texts of a step under unknown keys. An entry of a nested table has both names as its key."""
    values: dict[str, Any] = {}
    for key, value in step.items():
        if key in _KNOWN:
            continue
        inner: Mapping[str, Any] = value if isinstance(value, dict) else {"": value}
        for name, one in inner.items():
            if one is None or isinstance(one, int | float | str):
                values[f"{key}_{name}" if name else key] = one
    return values


def _heading(key: str) -> str:
    words = key.replace("_", " ")
    return f"{words.removesuffix(' bytes')}, B" if words.endswith(" bytes") else words


def _any_cell(value: Any) -> GridCell:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return GridCell(text="-" if value is None else str(value))
    return number_cell(value)


WIDTH = 1000.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Bar of one memory. All widths are in the picture's units; the capacity has WIDTH.

    used: width of the used bytes. limit: width of the budget; None without a budget below the capacity.
    code: width of the program after the constants; 0 if another memory holds it, or if several memories could.
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
    """Return a bar for each memory of the platform, from top to bottom."""
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
        parts.append(f"{bytes_text(kept)} are reserved for the application")
    if shown:
        parts.append(f"budget {shown:,} B, {shown - used:,} B free" if used <= shown else f"budget {shown:,} B")
    return Bar(
        y=y, name=memory["name"], kind=memory["kind"], used=round(min(used / capacity, 1) * WIDTH, 1),
        code=round(max(min((used + code_bytes) / capacity, 1) - min(used / capacity, 1), 0) * WIDTH, 1),
        limit=round(shown / capacity * WIDTH, 1) if shown else None, text="; ".join(parts),
        notes=[_bound(arena)] if arena and arena.lower_bound_bytes else [],
        is_over=used + code_bytes > (shown or capacity),
    )  # fmt: skip


def _bound(arena: ShownArena) -> str:
    """Return a sentence about the gap between an arena and its lower bound."""
    bound, num_bytes = arena.lower_bound_bytes or 0, arena.num_bytes
    if num_bytes == bound:
        return f"The arena of {num_bytes:,} B is proved minimal, because {num_bytes:,} B are live in one step."
    gap = f"The arena of {num_bytes:,} B is {(num_bytes - bound) / bound:.1%} above its lower bound of {bound:,} B"
    return f"{gap}; a search proved that no other offsets need fewer bytes." if arena.proved else f"{gap}."
