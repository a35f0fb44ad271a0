"""Interface of a code generator for the passes, which the pipeline passes to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tvm import relax

from tvm_ext.core.time_model import CallCost, Footprint


class Backend(Protocol):
    """Interface of a code generator for the passes.

    elementwise: names of the operators that a kernel can apply to each element that it has just computed.
    """

    @property
    def elementwise(self) -> frozenset[str]: ...

    def refuses(self, composite: relax.Function) -> str | None:
        """Return why this back end cannot compile a composite, in words for the user, or None when it can."""
        ...

    def has_kernel(self, composite: relax.Function) -> bool:
        """Return True where a dedicated kernel computes a composite, rather than plain C that is lowered from it."""
        ...

    def footprint(self, composite: relax.Function) -> Footprint:
        """Return the scratch of a composite, and the bytes that its output may share with inputs that die in it."""
        ...

    def may_grow_weights(self, composite: relax.Function) -> bool:
        """Return False if the kernel of a composite is surely the same where its weights may not grow."""
        ...

    def call_costs(
        self, composite: relax.Function, rows_per_call: Sequence[int], input_rows: int = 0
    ) -> Sequence[CallCost]:
        """Return scratch and cost of a composite for each number of rows per call.

        The rows are rows of its result, or, for a reduction over rows, rows that it adds up.
        input_rows: the number of rows to add up; 0 where it does not add up rows.
        """
        ...
