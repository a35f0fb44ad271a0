"""The composite run by TVM itself, to verify the results of the C code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import tvm
from tvm import relax

from codegen_c.tir.legalize import alone
from codegen_c.tir.llvm import compiled_with_llvm

Reference = Callable[[list[np.ndarray]], list[np.ndarray]]


def reference_of(function: relax.Function, module: tvm.IRModule | None = None) -> Reference:
    """`function` on TVM's virtual machine, compiled when it first runs; it gives a tuple's fields in order."""
    machine = cache(lambda: compiled_with_llvm(alone(function, module)))
    return lambda inputs: machine()(inputs)
