"""Modules of windows, before ConvertLayout and behind it."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.composites import composite_of
from relay_passes.dataflow import bindings, op_name
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.regions.form_composites import FormComposites
from tests.passes.modules import without_spans
from tests.passes.stub_backend import StubBackend

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(3, 2, 3, 3)).astype("float32")
NHWC_WEIGHTS = np.ascontiguousarray(WEIGHTS.transpose(0, 2, 3, 1))


def formed(before: tvm.IRModule) -> tvm.IRModule:
    return FormComposites(StubBackend())(without_spans(before))


def convert(mod: tvm.IRModule) -> tvm.IRModule:
    relax.analysis.well_formed(mod)
    after = ConvertLayout()(mod)
    relax.analysis.well_formed(after)
    return after


def moves(mod: tvm.IRModule) -> list[str]:
    """Operators of the composites that main calls, in order; permutations with their axes."""
    found = []
    for binding in bindings(mod["main"]):
        composite = composite_of(mod, binding.value)
        if composite is None:
            continue
        call = bindings(composite)[0].value
        name = (op_name(call) or "").removeprefix("relax.")
        found.append(f"{name} {[int(a) for a in call.attrs.axes]}" if name == "permute_dims" else name)
    return found


def image(name: str = "x", shape: tuple[int, ...] = (1, 2, 6, 5)) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, "float32"))


def conv(x: relax.Expr, weight: np.ndarray = WEIGHTS) -> relax.Expr:
    return relax.op.nn.conv2d(x, relax.const(weight), padding=(1, 1))


TO_LAST, TO_FIRST = "permute_dims [0, 2, 3, 1]", "permute_dims [0, 3, 1, 2]"
