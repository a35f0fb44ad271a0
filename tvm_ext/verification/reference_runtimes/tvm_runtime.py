"""TVM's virtual machine on a module, compiled with LLVM as TVM would. Runs in a child process.

Of a Relax module that a user hands over this is somebody else's runtime; of a file it runs our importer's reading.
Custom operators compute what their references say, in the parent process, which knows the user's functions.
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
"""Distance from a half up to which float32 arithmetic may round to either neighbor: values up to 127 have 7 digits."""


def run_reference(
    module: str,
    output_names: Sequence[str],
    samples: Sequence[Sample],
    inner: Sequence[str],
    states: Carried = (),
    *,
    ask: Running | None = None,
) -> dict[str, Any]:
    """Outputs, inner tensors and ties per sample; module: JSON of a module as `load` makes it, states last.

    ask: results of a custom operator's reference, from its name, its call as text, and its operands' arrays.
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
    told: dict[str, list[dict[str, Array]]] = {"outputs": [], "inner": [], "ties": []}
    for sample in samples:
        values = run([*(sample[name] for name in ported), *given])
        told["outputs"].append(dict(zip(output_names, values[:count], strict=True)))
        first = count + len(states)
        inside = {var.name: array for var, array in zip(seen, values[first : first + len(seen)], strict=True)}
        told["inner"].append({**dict(zip(carried, given, strict=True)), **inside})
        real = zip(rounded.items(), values[first + len(seen) :], strict=True)
        told["ties"].append({name: _ties(array, call) for (name, call), array in real})
        given = values[count : count + len(states)]
    return told


def _is_plain_quantize(value: relax.Expr) -> bool:
    """True for a quantize operator of a computed tensor with a constant scale."""
    return (
        op_name(value) == "relax.quantize"
        and isinstance(value.args[0], relax.Var)
        and array_of(value.args[1]) is not None
    )


def _ties(real: Array, quantize: relax.Call) -> Array:
    """bool of the shape of `real`: elements that float32 arithmetic may round to either neighbor."""
    scale = array_of(quantize.args[1])
    assert scale is not None, "asked by the caller"
    if scale.ndim:
        axis = int(quantize.attrs.axis) % real.ndim
        scale = scale.reshape([-1 if index == axis else 1 for index in range(real.ndim)])
    fraction = np.modf(np.abs(real.astype(np.float64) / scale.astype(np.float64)))[0]
    return np.abs(fraction - 0.5) < NEAR_HALF
