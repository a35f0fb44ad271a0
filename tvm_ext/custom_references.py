"""References of custom operators as functions of TVM's runtime, so that its virtual machine runs a module with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import numpy as np
import tvm
import tvm_ffi

from relay_passes.custom_uses import custom_use
from relay_passes.dataflow import bindings
from tvm_ext.core.decisions.custom import CustomUse

Array = np.ndarray
Running = Callable[[str, str, list[Array]], list[Array]]
"""Results of a reference, from the operator's name, its call as text, and arrays of its inputs and states."""


def register_references(mod: tvm.IRModule, run: Running) -> None:
    """Makes the references of the custom operators of `main` known to TVM's runtime in this process, by their symbols.

    A symbol belongs to one operator and one call; what was registered before for it is replaced.
    """
    for binding in bindings(mod["main"]):
        use = custom_use(binding.value)
        if use is not None:
            symbol = binding.value.args[0].global_symbol
            tvm_ffi.register_global_func(symbol, partial(_reference, use, run), override=True)


def _reference(use: CustomUse, run: Running, *tensors: tvm.runtime.Tensor) -> None:
    """Operands and tables that the C reads, then results, which are written."""
    split = len(tensors) - len(json.loads(use.call)["outputs"]) - len(use.states)
    operands = [tensor.numpy() for tensor in tensors[: split - use.num_tables]]
    for target, array in zip(tensors[split:], run(use.operator, use.call, operands), strict=True):
        target.copyfrom(array)
