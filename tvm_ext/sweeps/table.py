"""The table of a sweep: a row for each candidate, as CSV, JSON lines or Parquet, and its Pareto front."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

from tvm_ext.core.errors import BadOptions, MissingTool
from tvm_ext.core.files.staging import staged
from tvm_ext.core.printable import json_text
from tvm_ext.core.rich_display import rows_html

Row = Mapping[str, Any]

FIRST = ("model", "platform", "options", "tier")
FIGURES = (
    "ram_bytes", "flash_bytes", "code_bytes", "stack_bytes", "instructions", "predicted_instructions",
    "predicted_cycles", "macs", "method", "error", "message",
)  # fmt: skip
"""Columns after the user's own columns. `memories`, bytes by name, is only in JSON lines and Parquet."""
SECONDS = "seconds"
"""Optional column that differs from run to run."""
_MOST_TEXT = 1 << 20
_SHOWN = ("ram_bytes", "flash_bytes", "predicted_instructions", "method", "error")
"""Columns that a notebook shows after the names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepTable:
    """Rows in the order of the candidates. The row of a failed candidate has an error class and a message instead."""

    rows: Sequence[Row]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of all rows: names, the user's own columns, results."""
        found = dict.fromkeys(key for row in self.rows for key in row)
        own = [key for key in found if key not in (*FIRST, *FIGURES, SECONDS, "memories")]
        return (*FIRST, *own, *FIGURES, *([SECONDS] if SECONDS in found else []))

    def __repr__(self) -> str:
        failed = sum(1 for row in self.rows if row.get("error"))
        return f"<SweepTable of {len(self.rows):,} rows, {failed:,} failed>"

    def _repr_html_(self) -> str:
        shown = [*FIRST[:3], *_SHOWN]
        return rows_html(repr(self)[1:-1], shown, ([row.get(key) for key in shown] for row in self.rows))

    def write(self, path: str | Path) -> None:
        """Write the table in the format of the suffix, .csv, .jsonl or .parquet, as a whole or not at all.

        Raises BadOptions for another suffix, MissingTool for Parquet without pyarrow, OSError.
        """
        path = Path(path)
        if path.suffix == ".parquet":
            self._write_parquet(path)
        elif path.suffix == ".csv":
            _replace(path, self._write_csv)
        elif path.suffix == ".jsonl":
            _replace(path, self._write_json_lines)
        else:
            raise BadOptions(f"{path}: the suffix has to be .csv, .jsonl or .parquet; give the file another name.")

    def front(self, x: str = "ram_bytes", y: str = "predicted_instructions") -> tuple[Row, ...]:
        """Return the Pareto front of two columns, ordered by x: rows that no other row beats in both columns.

        Write a minus before a column of which more is better: `-accuracy`.
        """
        points = ((_value(row, x), _value(row, y), index) for index, row in enumerate(self.rows))
        found: list[int] = []
        least: Any = None
        for _, value, index in sorted(point for point in points if None not in point[:2]):
            if not found or value < least:
                found.append(index)
                least = value
        return tuple(self.rows[index] for index in found)

    def _write_csv(self, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="", extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            for row in self.rows:
                writer.writerow({key: "" if value is None else value for key, value in row.items()})

    def _write_json_lines(self, path: Path) -> None:
        columns = (*self.columns, "memories")
        with path.open("w", encoding="utf-8", newline="") as file:
            for row in self.rows:
                file.write(json_text({key: row.get(key) for key in columns}, None) + "\n")

    def _write_parquet(self, path: Path) -> None:
        """Write the rows in groups, so that memory does not hold all of them. A first pass finds the types."""
        try:
            import pyarrow  # pyright: ignore[reportMissingImports]
            from pyarrow import parquet  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingTool(
                "pyarrow is not installed; it comes with the extra: pip install 'tvm-ext[parquet]'; or write .csv."
            ) from None
        types = self._types()
        schema = pyarrow.schema([(name, getattr(pyarrow, kind)()) for name, kind in (*types.items(), _MEMORIES)])

        def write(place: Path) -> None:
            with parquet.ParquetWriter(place, schema) as writer:
                rows = iter(self.rows)
                while group := list(islice(rows, _GROUP_ROWS)):
                    columns = {name: [_as(row.get(name), kind) for row in group] for name, kind in types.items()}
                    columns["memories"] = [json_text(row.get("memories"), None) for row in group]
                    writer.write_table(pyarrow.table(columns, schema=schema))

        _replace(path, write)

    def _types(self) -> dict[str, str]:
        """Return the name of pyarrow's type for each column; text if a column has values of several kinds."""
        kinds: dict[str, set[type]] = {name: set() for name in self.columns}
        for row in self.rows:
            for name, found in kinds.items():
                if (value := row.get(name)) is not None:
                    found.add(type(value))
        return {name: _TYPES.get(frozenset(found), "string") for name, found in kinds.items()}


_MEMORIES = ("memories", "string")
_GROUP_ROWS = 10_000
_TYPES: Mapping[frozenset[type], str] = {
    frozenset(): "null", frozenset({bool}): "bool_", frozenset({int}): "int64", frozenset({float}): "float64",
    frozenset({int, float}): "float64",
}  # fmt: skip


def _as(value: object, kind: str) -> object:
    return str(value) if kind == "string" and value is not None else value


def read_row(value: object) -> dict[str, Any] | None:
    """Return the columns in the result of a candidate's job; None if the value is not a valid row."""
    if not isinstance(value, dict):
        return None
    row = cast("dict[str, Any]", value)
    texts, numbers = ("error", "message", "method"), {*FIGURES, SECONDS} - {"error", "message", "method"}
    memories = row.get("memories")
    if row.keys() - {*FIGURES, SECONDS, "memories"} or not isinstance(memories, dict | None):
        return None
    counts = [*(row[key] for key in numbers & row.keys()), *cast("dict[str, object]", memories or {}).values()]
    read = all(isinstance(row.get(key), str | None) and len(row.get(key) or "") < _MOST_TEXT for key in texts)
    return row if read and all(map(_is_count, counts)) and (row.get("error") or _is_complete(row)) else None


def _is_count(value: object) -> bool:
    """Return True for a finite number of at least 0, or None."""
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )


def _is_complete(row: Row) -> bool:
    """Return True if a row has all values of an estimate."""
    return all(row.get(key) is not None for key in ("ram_bytes", "flash_bytes", "predicted_instructions", "macs"))


def _value(row: Row, column: str) -> Any:
    """Return the value of a column, negated if more is better; None if the row has no value."""
    value = row.get(column.removeprefix("-"))
    return value if value is None or not column.startswith("-") else -value


def _replace(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file as a whole or not at all. write: writes the content at a path."""
    with staged(path.absolute().parent, path.name) as staging:
        new = staging / "new"
        write(new)
        new.replace(path)
