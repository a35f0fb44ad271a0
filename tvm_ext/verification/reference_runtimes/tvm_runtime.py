"""TVM's virtual machine on a module that TVM compiled with LLVM. Runs in a child process.

For a Relax module from the user TVM is an independent runtime; for a file it runs the module that our importer read.
Custom operators are computed by their references in the parent process, which has the user's functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from codegen_c.tir.llvm import compiled_with_llvm
from relay_passes.dataflow import array_of, bindings, op_name, outputs, rebuild
from tvm_ext.frontends.custom_calls import Running, register_references
from tvm_ext.verification.float64_module import MOST_MACS_AS_WRITTEN, multiply_accumulates
from tvm_ext.verification.reference_runtimes.reference_result import Carried

Array = np.ndarray
Sample = Mapping[str, Array]

NEAR_HALF = 1e-3
"""Distance from a half up to which float32 arithmetic may round to either neighbor. Values up to 127 have 7 digits."""


def run_reference(
    module: str,
    output_names: Sequence[str],
    samples: Sequence[Sample],
    inner: Sequence[str],
    states: Carried = (),
    *,
    ask: Running | None = None,
) -> dict[str, Any]:
    """Return outputs, inner tensors and ties by sample.

    module: JSON of a module from `load`, whose last parameters are the states.
    ask: function from a custom operator's name, its call as text and its operands to the results of its reference.
    """
    mod = tvm.ir.load_json(module)
    if ask is not None:
        register_references(mod, ask)
    main, wanted = mod["main"], set(inner)
    watched_bindings = [b for b in bindings(main) if isinstance(b.var.ty, relax.TensorType) and b.var.name in wanted]
    seen = [binding.var for binding in watched_bindings]
    rounded = {b.var.name: b.value for b in watched_bindings if _is_plain_quantize(b.value)}
    watched = mod.clone()
    watched.update_func(
        mod.get_global_var("main"),
        rebuild(
            main,
            bindings(main),
            [*outputs(main), *seen, *(call.args[0] for call in rounded.values())],
            as_tuple=True,
        ),
    )
    optimized = multiply_accumulates(mod) * len(samples) > MOST_MACS_AS_WRITTEN
    run, count = compiled_with_llvm(watched, optimized=optimized), len(output_names)
    names = [param.name for param in main.params]
    ported, carried = names[: len(names) - len(states)], names[len(names) - len(states) :]
    given = [np.asarray(state["initial"]) for state in states]
    results: dict[str, list[dict[str, Array]]] = {"outputs": [], "inner": [], "ties": []}
    for sample in samples:
        values = run([*(sample[name] for name in ported), *given])
        results["outputs"].append(dict(zip(output_names, values[:count], strict=True)))
        first = count + len(states)
        inside = {var.name: array for var, array in zip(seen, values[first : first + len(seen)], strict=True)}
        results["inner"].append({**dict(zip(carried, given, strict=True)), **inside})
        real = zip(rounded.items(), values[first + len(seen) :], strict=True)
        results["ties"].append({name: _ties(array, call) for (name, call), array in real})
        given = values[count : count + len(states)]
    return results


def _is_plain_quantize(value: relax.Expr) -> bool:
    """Return True for a quantize operator of a computed tensor with a constant scale."""
    return (
        op_name(value) == "relax.quantize"
        and isinstance(value.args[0], relax.Var)
        and array_of(value.args[1]) is not None
    )


def _ties(real: Array, quantize: relax.Call) -> Array:
    """Return True for each element of `real` that float32 arithmetic may round to either neighbor."""
    scale = array_of(quantize.args[1])
    assert scale is not None, "asked by the caller"
    if scale.ndim:
        axis = int(quantize.attrs.axis) % real.ndim
        scale = scale.reshape([-1 if index == axis else 1 for index in range(real.ndim)])
    fraction = np.modf(np.abs(real.astype(np.float64) / scale.astype(np.float64)))[0]
    return np.abs(fraction - 0.5) < NEAR_HALF
