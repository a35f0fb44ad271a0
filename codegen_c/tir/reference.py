"""The composite run by TVM itself, to verify the results of the C code."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from codegen_c.tir.legalize import alone
from codegen_c.tir.llvm import compiled_with_llvm


def run_reference(
    function: relax.Function, inputs: list[np.ndarray], module: tvm.IRModule | None = None
) -> list[np.ndarray]:
    """Outputs of `function` on TVM's virtual machine; a tuple's fields in order."""
    return compiled_with_llvm(alone(function, module))(inputs)
