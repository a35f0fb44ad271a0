"""Decisions about how a composite runs: row by row, for some columns, once more, as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_ext.core.columns import Columns
from tvm_ext.core.decisions.decision import Decision, attribute, json_attribute


def _columns(value: Any) -> Columns:
    begin, end = value
    return int(begin), int(end)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value))


@dataclass(frozen=True, kw_only=True)
class RowSplit(Decision):
    """Composites of one `sequence`, neighbours, run row by row in series; one without a sequence runs whole.

    rows_per_call: rows of its result that are computed at a time. input_rows: rows that the last of a sequence adds up
    as they come, 0 where it computes by rows of its result.
    """

    sequence: str = attribute("sequence", "")
    rows_per_call: int = attribute("rows_per_call", 0, read=int)
    input_rows: int = attribute("input_rows", 0, read=int)


@dataclass(frozen=True, kw_only=True)
class ColumnStrip(Decision):
    """Columns [begin, end) of an image, which are all that a composite computes; None for one that computes all."""

    columns: Columns | None = attribute("columns", None, read=_columns, write=list)


@dataclass(frozen=True, kw_only=True)
class StreamDirection(Decision):
    """A composite through which an input comes in (`read`) or an output goes out (`write`), rows of it at a time.

    rereads: rows of the input may be asked for more than once.
    """

    direction: str = attribute("stream", "")
    rereads: bool = attribute("rereads", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class PortsOutside(Decision):
    """Inputs and outputs of main lie with the application: they take no bytes here, and nothing is written over one."""

    is_set: bool = attribute("ports_outside", False, read=bool)


@dataclass(frozen=True, kw_only=True)
class PlacedPorts(Decision):
    """Memory of each input and output of main, in order; empty for the platform's default one."""

    inputs: tuple[str, ...] = json_attribute("placed_inputs", (), read=_texts)
    outputs: tuple[str, ...] = json_attribute("placed_outputs", (), read=_texts)
