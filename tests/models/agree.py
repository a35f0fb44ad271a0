"""Load a model, run it in TVM's VM, compare it with onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import tvm
from tvm import relax

from relay_passes.dataflow import bindings
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from relay_passes.simplify.fold_constants import FoldConstants
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.frontends.load import load


def run(mod: tvm.IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    relax.analysis.well_formed(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in inputs))
    return [result.numpy()] if hasattr(result, "numpy") else [field.numpy() for field in result]


def agree(path: Path, inputs: dict[str, np.ndarray], **options: object) -> tvm.IRModule:
    """Load and compare, as loaded and after the front passes, with onnxruntime; the module as loaded."""
    mod = load(path, **options)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
    order = [inputs[name] for name in PortNames.read(mod).inputs]
    for version in (mod, FoldConstants()(DuplicateDequantize()(mod))):
        found = run(version, order)
        assert [a.shape for a in found] == [a.shape for a in expected]
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return mod


def names(mod: tvm.IRModule) -> list[str]:
    return [binding.var.name for binding in bindings(mod["main"])]


def spans(mod: tvm.IRModule) -> list[str]:
    return [binding.value.span.source_name.name for binding in bindings(mod["main"])]
