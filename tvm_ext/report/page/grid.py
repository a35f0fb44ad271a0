"""Tables of a page: titles, headings and cells as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GridCell:
    """Text of a cell. more: told to who points at it; mark: good or bad, where it is a judgement."""

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
        """True where the cells of a column are numbers."""
        return any(row[column].is_number for row in self.rows)


def number_cell(value: float | None, unit: str = "") -> GridCell:
    """A number with thousands apart; a dash where there is none."""
    if value is None:
        return GridCell(text="-", is_number=True)
    return GridCell(text=f"{value:,}{unit}" if isinstance(value, int) else f"{value:,.4g}{unit}", is_number=True)
