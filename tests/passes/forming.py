"""FormComposites on small modules, and what came of them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, op_name
from relay_passes.regions.form_composites import FormComposites
from tests.passes.modules import without_spans
from tests.passes.stub_backend import StubBackend

IMAGE, WEIGHTS = (1, 2, 4, 4), np.ones((2, 2, 1, 1), "float32")
BYTES = np.ones((2, 2, 1, 1), "int8")
BIAS = np.ones((1, 2, 1, 1), "int32")


def form(before: tvm.IRModule, backend: StubBackend | None = None) -> tvm.IRModule:
    relax.analysis.well_formed(before)
    after = FormComposites(backend or StubBackend())(before)
    relax.analysis.well_formed(after)
    return after


def check(before: tvm.IRModule, expected: tvm.IRModule, backend: StubBackend | None = None) -> None:
    tvm.ir.assert_structural_equal(form(without_spans(before), backend), expected, map_free_vars=True)


def groups(mod: tvm.IRModule) -> list[tuple[str, list[str]]]:
    """Per binding of main, in order: its variable, and the operators computed there; other names are skipped."""
    found = []
    for binding in bindings(mod["main"]):
        if isinstance(binding.value, relax.Var):
            continue
        composite = composite_of(mod, binding.value)
        inner = bindings(composite) if composite else [binding]
        names = [(op_name(b.value) or type(b.value).__name__).removeprefix("relax.") for b in inner]
        found.append((binding.var.name, names if composite else [f"left {name}" for name in names]))
    return found


def tensor(name: str, shape: tuple[int, ...] = IMAGE, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def conv(x: relax.Expr) -> relax.Expr:
    return relax.op.nn.conv2d(x, relax.const(WEIGHTS))


def dequantize(x: relax.Expr) -> relax.Expr:
    return relax.op.dequantize(x, relax.const(0.5), relax.const(0, "int8"))


def quantize(x: relax.Expr) -> relax.Expr:
    return relax.op.quantize(x, relax.const(0.5), relax.const(0, "int8"), out_dtype="int8")
