"""Modules of composites in TVM's own virtual machine."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax


def run(module: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    """The first result of main for these inputs; composites run as the plain functions they are."""
    plain = module.clone()
    for var, func in module.functions_items():
        if isinstance(func, relax.Function) and func.attrs and "Composite" in func.attrs:
            plain.update_func(var, func.without_attr("Composite").without_attr("Primitive"))
    result = relax.VirtualMachine(tvm.compile(plain, target="llvm"), tvm.cpu())["main"](
        *(tvm.runtime.tensor(x) for x in inputs)
    )
    return (result if isinstance(result, tvm.runtime.Tensor) else result[0]).numpy()
