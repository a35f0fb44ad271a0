"""Memory and instructions of one operator, as a code generator tells the passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tvm_ext.core.columns import ColumnOperator
from tvm_ext.core.row_sequence import RowAccumulation, RowOperator


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory one composite needs beside its inputs and outputs, and its cost when it runs whole.

    instructions: modelled; ranks what could run, is never reported as a measurement.
    rows: how its rows depend on those of its parameters, None where it only runs whole.
    columns: the same of columns, None where it cannot be cut into strips of them. bands: the same of rows, where it is
    to compute some rows alone.
    accumulation: how it takes in its only parameter row by row, None where it needs all of it at once.
    shared_bytes: parameter -> bytes that the output shares with it where the parameter is read for the last time.
    kernel: the one that computes it; computes_floats: with an FPU, or slowly without.
    read_bytes: parameter -> bytes read of it in one run, modelled; weights_read_bytes the same of its `weights_bytes`,
    scratch_access_bytes of its scratch, written ones added. weight_bits: in which its weights are stored.
    """

    instructions: int
    rows: RowOperator | None = None
    columns: ColumnOperator | None = None
    bands: ColumnOperator | None = None
    accumulation: RowAccumulation | None = None
    scratch_bytes: int = 0
    shared_bytes: Mapping[int, int] = field(default_factory=dict[int, int])
    kernel: str = ""
    computes_floats: bool = False
    read_bytes: Mapping[int, int] = field(default_factory=dict[int, int])
    weights_bytes: int = 0
    weights_read_bytes: int = 0
    scratch_access_bytes: int = 0
    weight_bits: int = 8


@dataclass(frozen=True, kw_only=True)
class CallCost:
    """Needs and costs of one composite that runs so many rows per call.

    added_instructions: in all, beyond those of its whole run, by the kernel's own estimate of both.
    """

    scratch_bytes: int
    added_instructions: int
