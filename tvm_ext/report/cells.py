"""Text for cells of tables, and tables that fold long cells on narrow terminals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich import markup
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table

from tvm_ext.core.printable import printable


def escape(text: str) -> str:
    """Return a name of a model, file or operator without markup and without characters that control a terminal."""
    return markup.escape(printable(text))


def number(value: int | None, unit: str = "") -> str:
    """Return a count with thousands separators and its unit, or "not measured" for None."""
    return "not measured" if value is None else f"{value:,}{unit}"


def small_number(value: float | None) -> str:
    """Return a number with three digits, or a dash for None."""
    return "-" if value is None else f"{value:.3g}"


def percent(value: float | None) -> str:
    """Return a fraction in percent, or "not measured" for None."""
    return "not measured" if value is None else f"{value:.2%}"


def binary(num_bytes: int) -> str:
    """Return a number of bytes in the largest binary unit that divides it."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes % size == 0:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"


class FoldingTable(Table):
    """A table that folds a cell into several lines if its column is too narrow."""

    def add_column(self, header: RenderableType = "", *arguments: Any, **named: Any) -> None:
        super().add_column(header, *arguments, **{"overflow": "fold", **named})


@dataclass(frozen=True, kw_only=True)
class TableByWidth:
    """A table in a wide and a narrow form. columns: width of a terminal from which the wide form is shown."""

    title: str
    wide: Table
    narrow: Table
    columns: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        yield self.wide if options.max_width >= self.columns else self.narrow
