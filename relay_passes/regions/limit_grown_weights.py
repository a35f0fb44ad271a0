"""Allow kernels to store pre-transformed weights in more bytes only where that is cheap or worth the bytes.

Rewrite:
    z = composite(x), whose fastest kernel stores its weights in more bytes than the model does
      ->  the same composite with `KeptWeights`, where other layers save more time per byte and use up the share.
          Its kernel is then the fastest kernel that stores the weights as the model does.
Leaves alone: layers whose weights do not grow; the layers that save the most time per byte, as long as all of them
together stay within the share, or within 36 KiB for layers whose scratch does not make them the largest; and layers
that save a larger fraction of the model's time than they add to its constants. With a limit of all constants, layers
that are left alone for these reasons are kept as the model has them where the constants would exceed the limit.
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


@dataclass(frozen=True, kw_only=True, eq=False)
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
    share: the bytes that may be added, as a fraction of all constants; None for no limit. least_bytes: the bytes that
    may be added where the share is less. most_bytes: the bytes that all constants may take; None for no limit.
    """

    def __init__(
        self,
        costs: ProcessorCosts,
        share: float | None = SHARE,
        least_bytes: int = LEAST_BUDGET_BYTES,
        most_bytes: int | None = None,
    ) -> None:
        self.costs = costs
        self.share = share
        self.least_bytes = least_bytes
        self.most_bytes = most_bytes

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
        left_out = list[_Growth]()
        if self.share is not None:
            dear = [one for one in growths if one.saved_nanoseconds * constants_bytes < one.num_bytes * nanoseconds]
            share_bytes = int(constants_bytes * self.share)
            left_out += _beyond(dear, share_bytes, max(self.least_bytes, share_bytes), largest)
        if self.most_bytes is not None:
            budget_bytes = self.most_bytes - constants_bytes
            left_out += _beyond((one for one in growths if one not in left_out), budget_bytes, budget_bytes, largest)
        for growth in left_out:
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
