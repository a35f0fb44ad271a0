"""TVM's virtual machine on a module, compiled with LLVM as TVM would. Runs in a child process.

Of a Relax module that a user hands over this is somebody else's runtime; of a file it runs our importer's reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from relay_passes.dataflow import bindings, infer, op_name, outputs, rebuild

Array = np.ndarray
Sample = Mapping[str, Array]


def testify(
    module: str, output_names: Sequence[str], samples: Sequence[Sample], inner: Sequence[str]
) -> dict[str, Any]:
    """Outputs and inner tensors per sample; module: JSON of a module as `load` makes it."""
    mod = tvm.ir.load_json(module)
    main, wanted = mod["main"], set(inner)
    seen = [b.var for b in bindings(main) if isinstance(b.var.ty, relax.TensorType) and b.var.name in wanted]
    watched = mod.clone()
    watched.update_func(
        mod.get_global_var("main"), rebuild(main, bindings(main), [*outputs(main), *seen], as_tuple=True)
    )
    found = module_outputs(watched, samples)
    count = len(output_names)
    return {
        "outputs": [dict(zip(output_names, values[:count], strict=True)) for values in found],
        "inner": [
            {var.name: array for var, array in zip(seen, values[count:], strict=True)} for values in found
        ],
    }  # fmt: skip


def _fmod(call: tirx.Call) -> tirx.Expr:
    """C's function; TVM lowers `fmod` for C and not for LLVM."""
    dtype = str(call.ty.dtype)
    return tirx.call_pure_extern(dtype, "fmod" if dtype == "float64" else "fmodf", *call.args)


tirx.register_intrin_lowering("tirx.fmod", target="llvm", f=_fmod)


def module_outputs(mod: tvm.IRModule, samples: Sequence[Sample]) -> list[list[Array]]:
    """Results of `main` in order, for each sample."""
    machine = relax.VirtualMachine(tvm.compile(_without_unequal_bools(mod), target="llvm"), tvm.cpu())
    names = [param.name for param in mod["main"].params]
    results = []
    for sample in samples:
        # Not ascontiguousarray, which makes vectors of scalars.
        result = machine["main"](*[tvm.runtime.tensor(np.array(sample[name], order="C")) for name in names])
        fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
        results.append([field.numpy() for field in fields])
    return results


def _without_unequal_bools(mod: tvm.IRModule) -> tvm.IRModule:
    """Exclusive ors in place of comparisons of bools, which TVM compares as floats and LLVM then refuses."""
    main, changed = mod["main"], mod.clone()
    sequence = [relax.VarBinding(binding.var, _as_xor(binding.value)) for binding in bindings(main)]
    changed.update_func(mod.get_global_var("main"), rebuild(main, sequence, outputs(main)))
    return changed


def _as_xor(value: relax.Expr) -> relax.Expr:
    if op_name(value) != "relax.not_equal" or str(value.args[0].ty.dtype) != "bool":
        return value
    return infer(relax.op.logical_xor(*value.args))
