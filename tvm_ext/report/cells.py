"""Cells of tables as text, and tables that fold long cells on narrow terminals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich import markup
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table

from tvm_ext.core.printable import printable


def escape(text: str) -> str:
    """A name of a model, file or operator as it stands in a table: no markup, nothing that controls a terminal."""
    return markup.escape(printable(text))


def number(value: int | None, unit: str = "") -> str:
    """A count with thousands separators and its unit; words where there is no count."""
    return "not measured" if value is None else f"{value:,}{unit}"


def small_number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if value is None else f"{value:.3g}"


def percent(value: float | None) -> str:
    """A share of one, in percent."""
    return "not measured" if value is None else f"{value:.2%}"


def binary(num_bytes: int) -> str:
    """Bytes in the largest binary unit that divides them."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes % size == 0:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"


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
