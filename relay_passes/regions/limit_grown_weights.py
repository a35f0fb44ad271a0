"""Allow kernels to store pre-transformed weights in more bytes only where that is cheap or worth the bytes.

Rewrite:
    z = composite(x), whose fastest kernel stores its weights in more bytes than the model does
      ->  the same composite with `KeptWeights`, where other layers save more time per byte and use up the share.
          Its kernel is then the fastest kernel that stores the weights as the model does.
Leaves alone: layers whose weights do not grow; the layers that save the most time per byte, as long as all of them
together stay within the share, or within 36 KiB for layers whose scratch does not make them the largest; and layers
that save a larger fraction of the model's time than they add to its constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import tvm
from tvm import relax

from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, is_dataflow
from tvm_ext.core.decisions.composites import KeptWeights

SHARE = 0.1
"""Bytes that pre-transformed weights may add, as a fraction of all constants stored as the model has them."""
LEAST_BUDGET_BYTES = 36 << 10
"""Bytes that they may add to a model of any size: three quarters of the code of TensorFlow Lite Micro. Layers whose
kernel then needs more memory than any layer of the model needs now are left out, so that the arena stays."""


@dataclass(frozen=True, kw_only=True)
class _Growth:
    """The bytes that a layer's fastest kernel adds, and the predicted time that it saves.

    memory_bytes: of its inputs, output and scratch.
    """

    layer: tvm.ir.GlobalVar
    composite: relax.Function
    num_bytes: int
    memory_bytes: int
    saved_nanoseconds: int


@tvm.transform.module_pass(opt_level=0, name="LimitGrownWeights")
class LimitGrownWeights:
    """Mark composites whose weights may not grow.

    costs: of the processor that runs them.
    share: the bytes that may be added, as a fraction of all constants. least_bytes: the bytes that may be added where
    the share is less.
    """

    def __init__(self, costs: ProcessorCosts, share: float = SHARE, least_bytes: int = LEAST_BUDGET_BYTES) -> None:
        self.costs = costs
        self.share = share
        self.least_bytes = least_bytes

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        if not is_dataflow(mod["main"]):
            return mod
        constants_bytes, nanoseconds, largest, growths = 0, 0, 0, list[_Growth]()
        for binding in bindings(mod["main"]):
            composite = composite_of(mod, binding.value)
            if composite is None:
                continue
            faster, may_grow = self.costs.nanoseconds(composite) or 0, self.costs.backend.may_grow_weights(composite)
            kept = KeptWeights(is_set=True).write(composite) if may_grow else composite
            added_bytes = self._weights_bytes(composite) - self._weights_bytes(kept)
            constants_bytes += self._weights_bytes(kept)
            slower = self.costs.nanoseconds(kept) or 0 if may_grow else faster
            nanoseconds += slower
            largest = max(largest, self.costs.memory_bytes(kept))
            if added_bytes > 0:
                saved = slower - faster
                growths.append(
                    _Growth(
                        layer=binding.value.op,
                        composite=kept,
                        num_bytes=added_bytes,
                        memory_bytes=self.costs.memory_bytes(composite),
                        saved_nanoseconds=saved,
                    )
                )
        module = mod.clone()
        dear = [one for one in growths if one.saved_nanoseconds * constants_bytes < one.num_bytes * nanoseconds]
        share_bytes = int(constants_bytes * self.share)
        for growth in _beyond(dear, share_bytes, max(self.least_bytes, share_bytes), largest):
            module.update_func(growth.layer, growth.composite)
        return module

    def _weights_bytes(self, composite: relax.Function) -> int:
        return self.costs.backend.footprint(composite).weights_bytes


def _beyond(growths: Iterable[_Growth], share_bytes: int, budget_bytes: int, largest: int) -> list[_Growth]:
    """Return the layers that exceed the budget, which goes first to the layers that save the most time per byte.

    share_bytes: the budget of layers that need more memory than `largest`.
    """
    left_out, added_bytes = list[_Growth](), 0
    for growth in sorted(growths, key=lambda one: -one.saved_nanoseconds / one.num_bytes):
        limit = budget_bytes if growth.memory_bytes <= largest else share_bytes
        if added_bytes + growth.num_bytes <= limit:
            added_bytes += growth.num_bytes
        else:
            left_out.append(growth)
    return left_out
