"""Mark layers whose weights fit in 4 bits, so that the code generator packs them.

Rewrite:
    z = composite(x), whose constant weights are all from -8 to 7
      ->  the same composite with `StoredWeights(bits=4)`: its constants stay, and code generation packs two per byte
Leaves alone: layers with larger weights, layers without a kernel for packed weights, and layers that would take more
than `MOST_SLOWER` times the instructions.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.backend import Backend
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, is_dataflow
from tvm_ext.core.decisions.composites import StoredWeights

FOUR_BITS = StoredWeights(bits=4)
MOST_SLOWER = 2.0
"""Most instructions of a layer with packed weights, relative to int8.

No kernel written for packed weights exceeds this ratio, so a larger ratio means that the layer falls back to generic
code.
"""


@tvm.transform.module_pass(opt_level=0, name="PackWeights")
class PackWeights:
    """Mark composites whose weights the code generator stores in 4 bits."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_dataflow(mod["main"]):
            return mod
        module = mod.clone()
        for binding in bindings(mod["main"]):
            composite = composite_of(mod, binding.value)
            packed = self._packed(composite) if composite is not None else None
            if packed is not None:
                module.update_func(binding.value.op, packed)
        return module

    def _packed(self, composite: relax.Function) -> relax.Function | None:
        packed = FOUR_BITS.write(composite)
        before, after = self.backend.footprint(composite), self.backend.footprint(packed)
        pays = after.instructions <= before.instructions * MOST_SLOWER
        return packed if after.weight_bits == FOUR_BITS.bits and pays else None
