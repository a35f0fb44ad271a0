"""The table of a sweep: a row for each candidate, as CSV, JSON lines or Parquet, and its Pareto front."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of all rows: names, the user's own columns, results."""
        known = (*FIRST, *FIGURES, SECONDS, "memories")
        own = dict.fromkeys(key for row in self.rows for key in row if key not in known)
        return (*FIRST, *own, *FIGURES, *([SECONDS] if any(SECONDS in row for row in self.rows) else []))

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
        elif path.suffix in (".csv", ".jsonl"):
            _replace(path, (self._csv() if path.suffix == ".csv" else self._json_lines()).encode())
        else:
            raise BadOptions(f"{path}: the suffix has to be .csv, .jsonl or .parquet; give the file another name.")

    def front(self, x: str = "ram_bytes", y: str = "predicted_instructions") -> tuple[Row, ...]:
        """Return the Pareto front of two columns, ordered by x: rows that no other row beats in both columns.

        Write a minus before a column of which more is better: `-accuracy`.
        """
        rows = sorted((row for row in self.rows if None not in (_value(row, x), _value(row, y))),
                      key=lambda row: (_value(row, x), _value(row, y)))  # fmt: skip
        found: list[Row] = []
        for row in rows:
            if not found or _value(row, y) < _value(found[-1], y):
                found.append(row)
        return tuple(found)

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            writer.writerow({key: "" if value is None else value for key, value in row.items()})
        return text.getvalue()

    def _json_lines(self) -> str:
        columns = (*self.columns, "memories")
        return "".join(json_text({key: row.get(key) for key in columns}, None) + "\n" for row in self.rows)

    def _write_parquet(self, path: Path) -> None:
        try:
            import pyarrow  # pyright: ignore[reportMissingImports]
            from pyarrow import parquet  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingTool(
                "pyarrow is not installed; it comes with the extra: pip install 'tvm-ext[parquet]'; or write .csv."
            ) from None
        columns = {name: [row.get(name) for row in self.rows] for name in self.columns}
        columns["memories"] = [json_text(row.get("memories"), None) for row in self.rows]
        sink = io.BytesIO()
        parquet.write_table(pyarrow.table(columns), sink)
        _replace(path, sink.getvalue())


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


def _replace(path: Path, content: bytes) -> None:
    with staged(path.absolute().parent, path.name) as staging:
        new = staging / "new"
        new.write_bytes(content)
        new.replace(path)
