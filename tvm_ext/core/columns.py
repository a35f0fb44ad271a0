"""Input columns that an operator reads for some columns of its output, as cutting images into strips needs them.

Columns are half-open ranges (begin, end). The same holds of rows, where only some rows of an image are computed.
"""

from __future__ import annotations

from dataclasses import dataclass

Columns = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class ColumnReader:
    """Output column w reads `extent` input columns from w * stride - left on; what lies outside them is padding."""

    input_columns: int
    stride: int = 1
    left: int = 0
    extent: int = 1

    def read(self, columns: Columns) -> Columns:
        """Input columns that some output columns read, clipped to the input; (0, 0) where they read padding only."""
        begin, end = self._reach(columns)
        low, high = max(0, begin), min(self.input_columns, end)
        return (low, high) if low < high else (0, 0)

    def padding(self, columns: Columns) -> tuple[int, int]:
        """Columns of padding to the left and to the right that some output columns read."""
        begin, end = self._reach(columns)
        return max(0, -begin), max(0, end - self.input_columns)

    def _reach(self, columns: Columns) -> Columns:
        begin, end = columns
        return begin * self.stride - self.left, (end - 1) * self.stride - self.left + self.extent


@dataclass(frozen=True, kw_only=True)
class ColumnOperator:
    """num_columns: of its output. readers: of each input, None for one that it is handed whole for any columns.

    writes_apart: whether it can write some columns where an image of more columns has them.
    """

    num_columns: int
    readers: tuple[ColumnReader | None, ...]
    writes_apart: bool = False
