"""The shared frame of the passes of the memory phase: their arguments, the modules they skip, and the search."""

from __future__ import annotations

import tvm

from relay_passes.backend import Backend
from relay_passes.dataflow import is_dataflow
from relay_passes.searched import Searched, searched


class SearchingPass:
    """A pass that searches the operators of `main` for fewer live bytes, or for less time.

    backend: states the needs and costs of a composite.
    budget_bytes: the live bytes that are allowed; None asks for the fewest possible.
    known: an earlier search of the same module, if any.
    """

    def __init__(self, backend: Backend, budget_bytes: int | None = None, known: Searched | None = None) -> None:
        self.backend, self.budget_bytes, self.known = backend, budget_bytes, known

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_dataflow(mod["main"]):
            return mod
        return self.rewritten(mod, searched(mod, self.backend, self.known))

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        """Return the rewritten module, or the module itself where the search finds nothing better."""
        raise NotImplementedError
