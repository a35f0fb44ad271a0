"""The composite run by TVM itself, to verify what the C code computes."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from codegen_c.tir.legalize import alone


def run_reference(
    function: relax.Function, inputs: list[np.ndarray], module: tvm.IRModule | None = None
) -> list[np.ndarray]:
    """Outputs of `function` on TVM's virtual machine, compiled with LLVM; a tuple's fields in order."""
    executable = tvm.compile(alone(function, module), target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result = machine["main"](*[tvm.runtime.tensor(np.ascontiguousarray(array)) for array in inputs])
    fields = [result] if isinstance(result, tvm.runtime.Tensor) else list(result)
    return [field.numpy() for field in fields]
