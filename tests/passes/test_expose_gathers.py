"""ExposeGathers: what only takes elements from elsewhere is `take`; what computes stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper
from tvm import relax, te, tirx

import tvm_ext
from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.expose_gathers import ExposeGathers
from tests.support.onnx_models import model_of, saved
from tvm_ext.compilation.pipeline import compile_module

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def operators(node: NodeProto, constants: dict[str, np.ndarray], folder: Path) -> list[str | None]:
    """Operators of the module behind the pass; it has to compile as well."""
    module = tvm_ext.load(saved(model_of([node], {"x": (1, 2, 3, 4)}, ["y"], constants), folder))
    after = ExposeGathers()(module)
    relax.analysis.well_formed(after)
    compile_module(module, tvm_ext.Platform.load("host"), tvm_ext.BuildOptions())
    return [op_name(binding.value) for binding in bindings(after["main"])]


def test_nearest_neighbours_are_taken(tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **NEAREST)
    found = operators(node, {"scales": np.array([1, 1, 2, 3], np.float32)}, tmp_path)
    assert found == ["relax.take", "relax.take"]


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (
            helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
            {"scales": np.array([1, 1, 2, 2], np.float32)},
        ),
        (helper.make_node("Mod", ["x", "divisor"], ["y"], fmod=1), {"divisor": np.float32(1.5)}),
    ],
    ids=["interpolates", "calls what LLVM has no code for"],
)
def test_what_computes_stays(node: NodeProto, constants: dict[str, np.ndarray], tmp_path: Path) -> None:
    found = operators(node, constants, tmp_path)
    assert "relax.take" not in found and "relax.call_tir" in found


COMPUTED: dict[str, Callable[[tirx.Expr], tirx.Expr]] = {
    "of those above 0": lambda x: tirx.max(tirx.const(0, "float32"), x),
    "within limits": lambda x: tirx.max(tirx.min(x, tirx.const(5000, "float32")), tirx.const(-5000, "float32")),
    "magnitudes": tirx.abs,
    "rounded": lambda x: tirx.if_then_else(x > 100, tirx.round(x), x),
}


@pytest.mark.parametrize("compute", COMPUTED.values(), ids=COMPUTED)
@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 1)])
def test_what_computes_stays_however_few_elements_there_are(
    compute: Callable[[tirx.Expr], tirx.Expr], shape: tuple[int, ...]
) -> None:
    """A probe whose numbers all happen to be positive passed for a relu of one element."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(lambda x: te.compute(x.shape, lambda *i: compute(x(*i)), "y"), x)
            output = builder.emit_output(y)
        builder.emit_func_output(output)
    after = ExposeGathers()(builder.get())
    assert [op_name(binding.value) for binding in bindings(after["main"])][:1] == ["relax.call_tir"]
