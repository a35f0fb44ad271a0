"""Tables of which nothing is cut, however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table


class FoldingTable(Table):
    """A table whose cells go on in the next line where their column is too narrow."""

    def add_column(self, header: RenderableType = "", *arguments: Any, **named: Any) -> None:
        super().add_column(header, *arguments, **{"overflow": "fold", **named})


@dataclass(frozen=True, kw_only=True)
class TableByWidth:
    """A table in two forms, of which the wide one takes `columns` of the terminal."""

    title: str
    wide: Table
    narrow: Table
    columns: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield self.wide if options.max_width >= self.columns else self.narrow
