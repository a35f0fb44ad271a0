"""Small float modules, samples of their inputs, and what quantizing makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, op_name, static_shape
from relay_passes.quantization.quantize_int8 import QuantizeInt8
from tests.passes.modules import module_of
from tests.passes.stub_backend import ELEMENTWISE
from tvm_ext.core.decisions.models import QuantizationMeasured
from tvm_ext.frontends.load import load

OP = relax.op
IMAGE = (1, 2, 4, 4)
RNG = np.random.default_rng(3)
WEIGHTS = RNG.normal(size=(2, 2, 3, 3)).astype("float32")
BIAS = RNG.normal(size=(1, 2, 1, 1)).astype("float32")


def measured(mod: tvm.IRModule) -> dict[str, Any]:
    """The report that quantizing left in a module."""
    report = QuantizationMeasured.read(mod).report
    assert report is not None
    return dict(report)


def image(name: str = "x") -> relax.Var:
    return relax.Var(name, relax.TensorType(IMAGE, "float32"))


def conv(x: relax.Expr) -> relax.Expr:
    return OP.nn.conv2d(x, relax.const(WEIGHTS), padding=(1, 1))


def samples_of(mod: tvm.IRModule, count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    params = mod["main"].params
    return [{p.name: rng.normal(size=static_shape(p)).astype("float32") for p in params} for _ in range(count)]


def quantized(mod: tvm.IRModule, **options: object) -> tvm.IRModule:
    after = QuantizeInt8(samples_of(mod), elementwise=ELEMENTWISE, **options)(mod)
    relax.analysis.well_formed(after)
    return after


def operators(mod: tvm.IRModule) -> list[str]:
    """Operators of main in order, each with its dtype; dequantize of constants and activations is left out."""
    found = []
    for binding in bindings(mod["main"]):
        name = (op_name(binding.value) or "").removeprefix("relax.")
        if name != "dequantize":
            found.append(f"{name} {binding.var.ty.dtype}")
    return found


def build(body: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> tvm.IRModule:
    x = image()
    return load(module_of([x], lambda b: body(b, x)))
