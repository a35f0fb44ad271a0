"""Rows of a sweep in a temporary file: memory holds 16 bytes for each row."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, overload

Row = Mapping[str, Any]


class SweepRows(Sequence[Row]):
    """Rows by the index of their candidate, read from a file when they are used. `put` adds a row, in any order."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="tvm_ext_sweep_")  # noqa: SIM115 - closed with the last reference
        self._begin, self._num_bytes = array("q"), array("q")
        self._end = 0

    def put(self, index: int, row: Row) -> None:
        """Store the row of a candidate."""
        text = json.dumps(row, default=_plain).encode()
        while len(self._begin) <= index:
            self._begin.append(-1)
            self._num_bytes.append(0)
        self._file.seek(self._end)
        self._file.write(text)
        self._begin[index], self._num_bytes[index] = self._end, len(text)
        self._end += len(text)

    def __len__(self) -> int:
        return len(self._begin)

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        begin, num_bytes = self._begin[index], self._num_bytes[index]
        self._file.seek(begin)
        return json.loads(self._file.read(num_bytes))

    def __iter__(self) -> Iterator[Row]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Return True for a sequence of the same rows, in a file or not."""
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        rows = cast("Sequence[object]", other)
        return len(self) == len(rows) and all(one == row for one, row in zip(self, rows, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType] - like a list, whose rows may be added to


def _plain(value: object) -> object:
    """Return a number of numpy as a plain number, and the text of everything else, as the tables show it."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)
