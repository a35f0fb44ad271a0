"""Return the index of the largest element in place of all elements of an output."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import tvm
from tvm import relax

from relay_passes.dataflow import (
    infer,
    is_dataflow,
    live,
    names_in,
    outputs,
    rebuild,
    static_shape,
    with_main,
)
from relay_passes.patterns import Dataflow, any_constant, any_value, op
from tvm_ext.core.decisions.models import ChangedPorts, PortLayouts, PortNames, PortScales
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.names import unique

_Entry = TypeVar("_Entry")
_INTEGERS = any_value()
_ORDERED = op("relax.dequantize", _INTEGERS, any_constant(lambda scale: scale.size == 1 and scale.reshape(-1)[0] > 0))
"""Real numbers whose integers have the same order, under a single positive scale."""


@tvm.transform.module_pass(opt_level=0, name="IndexOutputs")
class IndexOutputs:
    """Return the index of the largest element along the last axis as int32; the first index where several are equal.

    Rewrite:
        return y: float32[1, 10]                ->   return astype(argmax(y, -1), int32): int32[1]
        y = dequantize(q, s, z); return y       ->   return astype(argmax(q, -1), int32); a scale preserves the order
    Leaves alone: other outputs, and outputs that are indices already.
    Raises BadOptions for an output that does not exist, or has no axis.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        main, names, before = mod["main"], PortNames.read(mod).outputs, ChangedPorts.read(mod)
        if not is_dataflow(main) or before.indexed:
            return mod
        for name in self.names:
            if name not in names:
                raise BadOptions(f"argmax {name}: the model has no such output; its outputs are {', '.join(names)}.")
        flow, taken, results = Dataflow(main), names_in(main), outputs(main)
        sequence = flow.sequence
        for place, name in enumerate(names):
            if name in self.names:
                ordered = flow.match(_ORDERED, results[place])
                added = _index(name, ordered[_INTEGERS] if ordered else results[place], taken)
                sequence, results[place] = [*sequence, *added], added[-1].var
        scales, layouts = PortScales.read(mod), PortLayouts.read(mod)
        mod = with_main(mod, rebuild(main, live(sequence, results), results))
        mod = PortScales(inputs=scales.inputs, outputs=_without(scales.outputs, self.names)).write(mod)
        mod = PortLayouts(inputs=layouts.inputs, outputs=_without(layouts.outputs, self.names)).write(mod)
        return ChangedPorts(inputs=before.inputs, indexed=tuple(self.names)).write(mod)


def _index(name: str, value: relax.Expr, taken: set[str]) -> list[relax.VarBinding]:
    shape, dtype = static_shape(value), str(value.ty.dtype)
    if not shape or not shape[-1] or dtype == "bool":
        raise BadOptions(f"argmax {name}: {dtype}{list(shape)} has no last axis of numbers; leave argmax out.")
    index = infer(relax.op.argmax(value, -1))
    wide = relax.DataflowVar(unique(f"{name}.argmax", taken), index.ty)
    narrow = infer(relax.op.astype(wide, "int32"))
    var = relax.DataflowVar(unique(f"{name}.index", taken), narrow.ty)
    return [relax.VarBinding(wide, index), relax.VarBinding(var, narrow)]


def _without(entries: Mapping[str, _Entry] | None, names: Collection[str]) -> dict[str, _Entry] | None:
    return {name: entry for name, entry in (entries or {}).items() if name not in names} or None
