"""Place inputs and outputs in memories that the application chooses, or leave their storage to the application.

Rewrite: main carries `PlacedPorts`.
Leaves alone: ports without an entry, which stay in the default memory; the computation of the module.
"""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from relay_passes.dataflow import with_main
from tvm_ext.core.decisions.composites import PlacedPorts, PortsOutside
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.errors import BadOptions


@tvm.transform.module_pass(opt_level=0, name="PlacePorts")
class PlacePorts:
    """Record the memories of inputs and outputs.

    memories: memory by the model's own name of an input or output. Raises BadOptions for any other name.
    """

    def __init__(self, memories: Mapping[str, str]) -> None:
        self.memories = memories

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        names = PortNames.read(mod)
        known = (*names.inputs, *names.outputs)
        unknown = next((name for name in self.memories if name not in known), None)
        if unknown is not None:
            raise BadOptions(f"place_port: the model has no input or output {unknown!r}; it has {', '.join(known)}.")
        placed = PlacedPorts(
            inputs=tuple(self.memories.get(name, "") for name in names.inputs),
            outputs=tuple(self.memories.get(name, "") for name in names.outputs),
        )
        return with_main(mod, placed.write(mod["main"]))


@tvm.transform.module_pass(opt_level=0, name="LeavePorts")
class LeavePorts:
    """Record that main's inputs and outputs take no bytes, and that no result overwrites an input."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return with_main(mod, PortsOutside(is_set=True).write(mod["main"]))
