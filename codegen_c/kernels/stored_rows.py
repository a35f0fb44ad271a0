"""Rows of a kernel's operands that are stored: a ring of some of them, or all, and where they lie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Kept:
    """Rows kept of an operand: row h in slot (h + shift) % stored.

    stored_name, shift_name: parameters of the function that say so, where layers share it; empty for constants.
    """

    stored: int
    shift: int = 0
    stored_name: str = ""
    shift_name: str = ""

    @property
    def stored_text(self) -> str:
        """`stored` as C."""
        return self.stored_name or str(self.stored)

    @property
    def shift_text(self) -> str:
        """`shift` as C; empty for none."""
        return self.shift_name or (str(self.shift) if self.shift else "")

    def slot(self, row: int) -> int:
        return (row + self.shift) % self.stored


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """Stored rows of each operand; None means all of them.

    at_once: output rows that a call computes, where the first and the last may compute fewer; None: the only call
    computes all, or where rows are kept, any. Where all rows are stored, a plan may call for one after the other, the
    last first, if `Spatial` lets it (`descends`, nothing `behind`).
    call_rows: all numbers of rows that calls compute, where they are known.
    pitch: elements from one pixel of the output to the next, None: its channels. Other kernels write what lies between.
    row_pitch: the same from one row of a single image to the next, None: its columns. A multiple of the pixels'.
    """

    inputs: tuple[Kept | None, ...] = ()
    output: Kept | None = None
    at_once: int | None = None
    call_rows: frozenset[int] = frozenset()
    pitch: int | None = None
    row_pitch: int | None = None

    def input(self, index: int) -> Kept | None:
        return self.inputs[index] if index < len(self.inputs) else None


ALL_STORED = StoredRows()
