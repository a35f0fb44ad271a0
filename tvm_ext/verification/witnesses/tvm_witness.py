"""TVM's virtual machine on a module, compiled with LLVM as TVM would. Runs in a child process.

Of a Relax module that a user hands over this is somebody else's runtime; of a file it runs our importer's reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from codegen_c.tir.llvm import compiled_with_llvm
from relay_passes.dataflow import bindings, outputs, rebuild

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


def module_outputs(mod: tvm.IRModule, samples: Sequence[Sample]) -> list[list[Array]]:
    """Results of `main` in order, for each sample."""
    run, names = compiled_with_llvm(mod), [param.name for param in mod["main"].params]
    return [run([sample[name] for name in names]) for sample in samples]
