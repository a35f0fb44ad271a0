"""The face of a code generator toward the passes, handed to them by the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tvm import relax

from tvm_ext.core.time_model import CallCost, Footprint


class Backend(Protocol):
    """The face of a code generator toward the passes.

    elementwise: names of the operators it can run on each element another kernel has just computed.
    """

    @property
    def elementwise(self) -> frozenset[str]: ...

    def refuses(self, composite: relax.Function) -> str | None:
        """Reason why it can't compile a composite, in words for the user; None when it can."""
        ...

    def has_kernel(self, composite: relax.Function) -> bool:
        """True where a kernel of its own computes a composite, not plain C that is lowered from it."""
        ...

    def footprint(self, composite: relax.Function) -> Footprint:
        """Scratch of a composite it compiles, and what its output may share with inputs that die there."""
        ...

    def call_costs(
        self, composite: relax.Function, rows_per_call: Sequence[int], input_rows: int = 0
    ) -> Sequence[CallCost]:
        """Needs and costs of a composite for each number of rows per call: of its own, or of those that it adds up.

        input_rows: rows there are to add up; 0 where it runs by its own.
        """
        ...
