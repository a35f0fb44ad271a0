"""Turn results that no operator computes into composites that copy, so that code generation sees only operators.

Rewrite:
    return const            ->  c = copy(); return c            the constant stays inside the composite
    return x (an input)     ->  c = copy(x); return c           only in a function without operators
Leaves alone: inputs that are returned beside computed results, because the region that returns them copies them.
"""

from __future__ import annotations

import tvm
from tvm import relax

from relay_passes.composites import attributes, call_new, composite_of
from relay_passes.dataflow import bindings, build, is_dataflow, outputs, rebuild
from tvm_ext.core.names import unique


@tvm.transform.module_pass(opt_level=0, name="CopyResults")
class CopyResults:
    """Turn results that no operator computes into composites that copy."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        sequence = bindings(main)
        computes = any(composite_of(mod, binding.value) is not None for binding in sequence)
        module, results = mod.clone(), []
        taken = {var.name_hint for var in module.get_global_vars()}
        for result in outputs(main):
            is_input = isinstance(result, relax.Var) and any(result.same_as(param) for param in main.params)
            if isinstance(result, tvm.ir.GenericConst) or (is_input and not computes):
                binding = _copied(module, result, unique("copy", taken))
                sequence.append(binding)
                result = binding.var
            results.append(result)
        module.update_func(module.get_global_var("main"), rebuild(main, sequence, results))
        return module


def _copied(module: tvm.IRModule, value: relax.Expr, name: str) -> relax.VarBinding:
    """Return a binding that calls a new composite which returns `value`."""
    is_input = isinstance(value, relax.Var)
    params = [relax.Var(value.name, value.ty)] if is_input else []
    composite = build(params, [], params or [value], attrs=attributes("copy", []))
    call = call_new(module, name, composite, [value] if is_input else [])
    return relax.VarBinding(relax.Var(f"{value.name}.copy" if is_input else "constant", call.ty), call)
