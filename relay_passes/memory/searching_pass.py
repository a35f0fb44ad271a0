"""The frame that passes of the memory phase share: what they are made with, what they leave alone, what they search."""

from __future__ import annotations

import tvm

from relay_passes.backend import Backend
from relay_passes.dataflow import is_dataflow
from relay_passes.searched import Searched, searched


class SearchingPass:
    """A pass that searches the operators of `main` for fewer bytes alive, or less time.

    backend: says what a composite needs and costs. budget_bytes: bytes alive that are allowed; None asks for the fewest
    possible. known: of the module, where it was searched before.
    """

    def __init__(self, backend: Backend, budget_bytes: int | None = None, known: Searched | None = None) -> None:
        self.backend, self.budget_bytes, self.known = backend, budget_bytes, known

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_dataflow(mod["main"]):
            return mod
        return self.rewritten(mod, searched(mod, self.backend, self.known))

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        """The module as the pass makes it; itself where nothing better was found."""
        raise NotImplementedError
