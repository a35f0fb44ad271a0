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
from relay_passes.dataflow import bindings, outputs, rebuild
from tvm_ext.custom_references import Running, register_references
from tvm_ext.verification.witnesses.testimony import Carried

Array = np.ndarray
Sample = Mapping[str, Array]


def testify(
    module: str,
    output_names: Sequence[str],
    samples: Sequence[Sample],
    inner: Sequence[str],
    states: Carried = (),
    *,
    ask: Running | None = None,
) -> dict[str, Any]:
    """Outputs and inner tensors per sample; module: JSON of a module as `load` makes it, states last.

    ask: results of a custom operator's reference, from its name, its call as text, and its operands' arrays.
    """
    mod = tvm.ir.load_json(module)
    if ask is not None:
        register_references(mod, ask)
    main, wanted = mod["main"], set(inner)
    seen = [b.var for b in bindings(main) if isinstance(b.var.ty, relax.TensorType) and b.var.name in wanted]
    watched = mod.clone()
    watched.update_func(
        mod.get_global_var("main"), rebuild(main, bindings(main), [*outputs(main), *seen], as_tuple=True)
    )
    run, count = compiled_with_llvm(watched), len(output_names)
    names = [param.name for param in main.params]
    ported, carried = names[: len(names) - len(states)], names[len(names) - len(states) :]
    given = [np.asarray(state["initial"]) for state in states]
    told: dict[str, list[dict[str, Array]]] = {"outputs": [], "inner": []}
    for sample in samples:
        values = run([*(sample[name] for name in ported), *given])
        told["outputs"].append(dict(zip(output_names, values[:count], strict=True)))
        inside = {var.name: array for var, array in zip(seen, values[count + len(states) :], strict=True)}
        told["inner"].append({**dict(zip(carried, given, strict=True)), **inside})
        given = values[count : count + len(states)]
    return told
