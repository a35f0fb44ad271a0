"""What passes must know of the code generator, handed to them by the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tvm import relax

from tvm_ext.core.columns import ColumnOperator
from tvm_ext.core.row_sequence import RowAccumulation, RowOperator


class Footprint(Protocol):
    """Memory one composite needs beside its inputs and outputs, and what it costs to run.

    instructions: modelled; ranks what could run, is never reported as a measurement.
    rows: how its rows depend on those of its parameters, None where it only runs whole.
    columns: the same of columns, None where it cannot be cut into strips of them.
    accumulation: how it takes in its only parameter row by row, None where it needs all of it at once.
    shared_bytes: parameter -> bytes that the output shares with it where the parameter is read for the last time.
    kernel: by what it is computed. read_bytes: parameter -> bytes read of it in one run, modelled; weights_read_bytes
    the same of its `weights_bytes`, scratch_access_bytes of its scratch, written ones added.
    """

    @property
    def instructions(self) -> int: ...
    @property
    def rows(self) -> RowOperator | None: ...
    @property
    def columns(self) -> ColumnOperator | None: ...
    @property
    def accumulation(self) -> RowAccumulation | None: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def shared_bytes(self) -> Mapping[int, int]: ...
    @property
    def kernel(self) -> str: ...
    @property
    def read_bytes(self) -> Mapping[int, int]: ...
    @property
    def weights_bytes(self) -> int: ...
    @property
    def weights_read_bytes(self) -> int: ...
    @property
    def scratch_access_bytes(self) -> int: ...


class CallCost(Protocol):
    """What one composite needs and costs when it runs some rows a call.

    added_instructions: in all, beyond those of its whole run, by the kernel's own estimate of both.
    """

    @property
    def scratch_bytes(self) -> int: ...
    @property
    def added_instructions(self) -> int: ...


class Backend(Protocol):
    """The face of a code generator toward the passes.

    elementwise: names of the operators it can run on each element another kernel has just computed.
    """

    @property
    def elementwise(self) -> frozenset[str]: ...

    def refuses(self, composite: relax.Function) -> str | None:
        """Why it can't compile a composite, in words for the user; None when it can."""
        ...

    def footprint(self, composite: relax.Function) -> Footprint:
        """Scratch of a composite it compiles, and what its output may share with inputs that die there."""
        ...

    def call_costs(
        self, composite: relax.Function, rows_per_call: Sequence[int], input_rows: int = 0
    ) -> Sequence[CallCost]:
        """What a composite needs and costs for each number of rows a call: of its own, or of those that it adds up.

        input_rows: how many rows there are to add up; 0 where it runs by its own.
        """
        ...
