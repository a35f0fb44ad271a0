"""Inputs and outputs stay with the application: what searches for less memory count is the arena alone.

Rewrite: main carries `PortsOutside`.
Leaves alone: states, which lie in the arena's place of their own; what the module computes.
"""

from __future__ import annotations

import tvm

from relay_passes.dataflow import with_main
from tvm_ext.core.decisions.execution import PortsOutside


@tvm.transform.module_pass(opt_level=0, name="LeavePorts")
class LeavePorts:
    """Says that main's inputs and outputs take no bytes, and that nothing is written over an input."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return with_main(mod, PortsOutside(is_set=True).write(mod["main"]))
