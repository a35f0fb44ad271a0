"""Input rows and columns that each output row or column of an operator reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


@dataclass(frozen=True, kw_only=True)
class RowAccess:
    """Output row r reads input rows [begins[r], ends[r]) of `input_rows`, or only padding where both are equal.

    Any rows may be read in any order: a crop starts late, and a resize repeats or skips rows.
    """

    input_rows: int
    begins: Sequence[int]
    ends: Sequence[int]

    def __post_init__(self) -> None:
        assert len(self.begins) == len(self.ends), "each output row has one range"

    @classmethod
    def same(cls, rows: int) -> RowAccess:
        """Return an access in which row r reads row r."""
        return cls(input_rows=rows, begins=range(rows), ends=range(1, rows + 1))

    @classmethod
    def whole(cls, output_rows: int) -> RowAccess:
        """Return an access in which every row reads the whole input, as a single row."""
        return cls(input_rows=1, begins=(0,) * output_rows, ends=(1,) * output_rows)

    @classmethod
    def sliding(
        cls, input_rows: int, output_rows: int, *, taps: int, stride: int = 1, dilation: int = 1, padding: int = 0
    ) -> RowAccess:
        """Return the access of a window of `taps` rows that starts at row r * stride - padding.

        Rows outside the input are clipped.
        """
        firsts = range(-padding, output_rows * stride - padding, stride)
        clipped = [(max(0, first), min(input_rows, first + (taps - 1) * dilation + 1)) for first in firsts]
        ranges = [(begin, end) if begin < end else (0, 0) for begin, end in clipped]
        return cls(
            input_rows=input_rows, begins=tuple(begin for begin, _ in ranges), ends=tuple(end for _, end in ranges)
        )

    @property
    def output_rows(self) -> int:
        return len(self.begins)

    def read(self, begin: int, end: int) -> tuple[int, int]:
        """Return the half-open range of input rows that output rows [begin, end) read, or (0, 0) if they read none."""
        pairs = zip(self.begins[begin:end], self.ends[begin:end], strict=True)
        ranges = [(low, high) for low, high in pairs if low < high]
        return (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else (0, 0)

    @cached_property
    def needed_from(self) -> tuple[int, ...]:
        """The first input row that each output row or a later one reads.

        One more element, the number of all rows, follows the last row.
        """
        pairs = zip(reversed(self.begins), reversed(self.ends), strict=True)
        firsts = (begin if begin < end else self.input_rows for begin, end in pairs)
        return tuple(accumulate(firsts, min, initial=self.input_rows))[::-1]

    @cached_property
    def needed_to(self) -> tuple[int, ...]:
        """The end of the input rows that each output row and all earlier rows read."""
        return tuple(accumulate((e if b < e else 0 for b, e in zip(self.begins, self.ends, strict=True)), max))

    @cached_property
    def lag(self) -> int:
        """Rows by which the output has to lie ahead of the input, so that no row is overwritten before it is read.

        Output row r lies where row r - lag of the input lay.
        """
        return max(0, *(row + 1 - needed for row, needed in enumerate(self.needed_from[1:])))


Columns = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class ColumnReader:
    """Output column w reads `extent` input columns from w * stride - left on. Columns outside the input are padding."""

    input_columns: int
    stride: int = 1
    left: int = 0
    extent: int = 1

    def read(self, columns: Columns) -> Columns:
        """Return the input columns that some output columns read, clipped to the input, or (0, 0) for only padding."""
        begin, end = self._reach(columns)
        low, high = max(0, begin), min(self.input_columns, end)
        return (low, high) if low < high else (0, 0)

    def padding(self, columns: Columns) -> tuple[int, int]:
        """Return the columns of padding at the left and right that some output columns read."""
        begin, end = self._reach(columns)
        return max(0, -begin), max(0, end - self.input_columns)

    def _reach(self, columns: Columns) -> Columns:
        begin, end = columns
        return begin * self.stride - self.left, (end - 1) * self.stride - self.left + self.extent


@dataclass(frozen=True, kw_only=True)
class ColumnOperator:
    """How the columns of an operator depend on its inputs.

    num_columns: of its output.
    readers: of each input, None for an input that is passed whole for any columns.
    writes_apart: whether it can write some columns directly into a wider image.
    """

    num_columns: int
    readers: tuple[ColumnReader | None, ...]
    writes_apart: bool = False
