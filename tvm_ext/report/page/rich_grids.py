"""Tables of the command line as tables of a page: the same words in both."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tvm_ext.report.page.grid import Grid, GridCell

_MARKS = {"green": "good", "bold red": "bad", "yellow": "bad"}


def grids_of(tables: list[RenderableType]) -> list[Grid]:
    """A grid for each table; texts behind it become its notes."""
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
