"""What passes must know of the code generator, handed to them by the pipeline."""

from __future__ import annotations

from typing import Protocol

from tvm import relax


class Backend(Protocol):
    """The face of a code generator toward the passes.

    elementwise: names of the operators it can run on each element another kernel has just computed.
    """

    @property
    def elementwise(self) -> frozenset[str]: ...

    def refuses(self, composite: relax.Function) -> str | None:
        """Why it can't compile a composite, in words for the user; None when it can."""
        ...
