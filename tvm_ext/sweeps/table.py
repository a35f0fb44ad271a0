"""The table of a sweep: one row per candidate, as CSV, JSON lines or Parquet; and the rows that no other beats."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_ext.core.errors import BadOptions, MissingTool
from tvm_ext.core.files.staging import staged
from tvm_ext.core.printable import json_text
from tvm_ext.core.rich_display import rows_html

Row = Mapping[str, Any]

FIRST = ("model", "platform", "options", "tier")
FIGURES = (
    "ram_bytes", "flash_bytes", "code_bytes", "stack_bytes", "instructions", "predicted_instructions",
    "predicted_cycles", "macs", "method", "error", "message", "seconds",
)  # fmt: skip
"""Columns behind the user's own; `memories`, bytes by name, stands in JSON lines and Parquet alone."""
_SHOWN = ("ram_bytes", "flash_bytes", "predicted_instructions", "method", "error")
"""Columns that a notebook shows, behind the names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepTable:
    """Rows in the order of the candidates. A row that came to an error has its class and message, and no figures."""

    rows: Sequence[Row]

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of all rows: names, the user's own, figures."""
        own = dict.fromkeys(key for row in self.rows for key in row if key not in (*FIRST, *FIGURES, "memories"))
        return (*FIRST, *own, *FIGURES)

    def __repr__(self) -> str:
        failed = sum(1 for row in self.rows if row.get("error"))
        return f"<SweepTable of {len(self.rows):,} rows, {failed:,} without figures>"

    def _repr_html_(self) -> str:
        shown = [*FIRST[:3], *_SHOWN]
        return rows_html(repr(self)[1:-1], shown, ([row.get(key) for key in shown] for row in self.rows))

    def write(self, path: str | Path) -> None:
        """Write the table as its name's suffix says: .csv, .jsonl or .parquet, whole or not at all.

        Raises BadOptions for another suffix, MissingTool for Parquet without pyarrow, OSError.
        """
        path = Path(path)
        if path.suffix == ".parquet":
            self._write_parquet(path)
        elif path.suffix in (".csv", ".jsonl"):
            _replace(path, (self._csv() if path.suffix == ".csv" else self._json_lines()).encode())
        else:
            raise BadOptions(f"{path}: tables are written as .csv, .jsonl or .parquet; give it such a name.")

    def front(self, x: str = "ram_bytes", y: str = "predicted_instructions") -> tuple[Row, ...]:
        """Rows of which none is beaten in one of two columns by a row that is no worse in the other, by x.

        Columns of which more is better, such as an accuracy, are named with a minus: `-accuracy`.
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


def _value(row: Row, column: str) -> Any:
    """A number to be made small; None where the row has none."""
    value = row.get(column.removeprefix("-"))
    return value if value is None or not column.startswith("-") else -value


def _replace(path: Path, content: bytes) -> None:
    with staged(path.absolute().parent, path.name) as staging:
        new = staging / "new"
        new.write_bytes(content)
        new.replace(path)
