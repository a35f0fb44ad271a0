"""Give every consumer its own copy of a dequantize, so that each quantized operator matches as a whole.

range_quantize is copied in the same manner: each of the layers that share a range_quantize then determines the range of
the same tensor itself.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.dataflow import map_dataflow, names_in, op_name, operands, rebuild, substitute
from relay_passes.patterns import Dataflow
from tvm_ext.core.names import RANGE_QUANTIZE


@tvm.transform.module_pass(opt_level=0, name="DuplicateDequantize")
class DuplicateDequantize:
    """Copy a dequantize that several calls read, so that each call has its own copy; the first keeps the name.

    Rewrite:
        a = dequantize(x, s, z)        a = dequantize(x, s, z)
        b = conv2d(a, w)           ->  b = conv2d(a, w)
        c = add(a, b)                  a.dup1 = dequantize(x, s, z)
                                       c = add(a.dup1, b)
    Leaves alone: a dequantize with a single reading call, even if that call reads it twice; and quantize. A dequantize
    that the function returns stays, and its readers get copies.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _duplicate)


def _duplicate(func: relax.Function) -> relax.Function:
    flow, taken = Dataflow(func), names_in(func)
    shared = {b.var: b.value for b in flow.sequence if op_name(b.value) in ("relax.dequantize", RANGE_QUANTIZE)}
    copies: dict[relax.Var, int] = {}
    rewritten = []
    for binding in flow.sequence:
        own: dict[relax.Var, relax.Var] = {}
        for leaf in dict.fromkeys(operands(binding.value)):
            if leaf not in shared:
                continue
            # The original serves the first reader, unless the function returns it: then every reader gets a copy.
            if flow.readers[leaf][0] is binding and leaf not in flow.returned:
                continue
            own[leaf] = relax.DataflowVar(_fresh(leaf, copies, taken), leaf.ty)
            rewritten.append(relax.VarBinding(own[leaf], shared[leaf]))
        rewritten.append(relax.VarBinding(binding.var, substitute(binding.value, own)))
    return rebuild(func, rewritten)


def _fresh(var: relax.Var, copies: dict[relax.Var, int], taken: set[str]) -> str:
    while True:
        copies[var] = copies.get(var, 0) + 1
        name = f"{var.name}.dup{copies[var]}"
        if name not in taken:
            taken.add(name)
            return name
