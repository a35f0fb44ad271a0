"""TurnTransposed: transposed convolutions become convolutions, or a layer for each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import array_of, bindings, op_name
from relay_passes.simplify.turn_transposed import TurnTransposed
from tests.passes.modules import module_of
from tests.support.virtual_machine import run

OP = relax.op
RANDOM = np.random.default_rng(5)


def layer(taps: tuple[int, ...], *, channels: int = 4, per_group: int = 3, **options: Any) -> tvm.IRModule:
    """A transposed convolution of 4 channels over one axis or two, 7 elements each."""
    x = relax.Var("x", relax.TensorType((1, channels, *[7] * len(taps)), "float32"))
    weight = relax.const(RANDOM.standard_normal((channels, per_group, *taps)).astype("f4"))
    make = OP.nn.conv1d_transpose if len(taps) == 1 else OP.nn.conv2d_transpose
    return module_of([x], lambda builder: OP.nn.relu(builder.emit(make(x, weight, **options))))


def names(mod: tvm.IRModule) -> list[str]:
    return [(op_name(b.value) or "").removeprefix("relax.") for b in bindings(mod["main"])]


CASES = {
    "plain": (layer((3, 2)), ["nn.conv2d", "nn.relu"]),
    "padding": (layer((3, 4), padding=(1, 0, 2, 3)), ["nn.conv2d", "nn.relu"]),
    "dilation": (layer((3, 3), padding=(5, 1), dilation=(5, 1), groups=4, per_group=1), ["nn.conv2d", "nn.relu"]),
    "groups": (layer((3, 3), groups=2), ["nn.conv2d", "nn.relu"]),
    "one axis": (layer((4,), padding=(2, 1), groups=2), ["nn.conv1d", "nn.relu"]),
    "strides and groups": (
        layer((1, 5), strides=(1, 2), padding=(0, 2), output_padding=(0, 1), groups=2),
        ["strided_slice", "nn.conv2d_transpose", "nn.relu"] * 2 + ["concat"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_other_form_computes_the_same(case: str) -> None:
    before, wanted = CASES[case]
    after = TurnTransposed()(before)
    relax.analysis.well_formed(after)
    assert sorted(names(after)) == sorted(wanted)
    layers = [binding.var.name for binding in bindings(after["main"])]
    assert len(set(layers)) == len(layers), "verification compares layers by their names"
    x = RANDOM.standard_normal([int(extent) for extent in before["main"].params[0].ty.shape.values]).astype("f4")
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (6, 1, 1)])
def test_groups_take_the_bias_with_them(shape: tuple[int, ...]) -> None:
    x, weight = relax.Var("x", relax.TensorType((1, 4, 5, 5), "float32")), RANDOM.standard_normal((4, 3, 3, 3))
    bias = RANDOM.standard_normal(shape).astype("f4")

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        made = builder.emit(OP.nn.conv2d_transpose(x, relax.const(weight.astype("f4")), strides=(2, 2), groups=2))
        clipped = builder.emit(OP.clip(builder.emit(OP.add(relax.const(bias), made)), -1, 1))
        return OP.add(clipped, relax.const(np.ones((1, 1, 1, 11), "f4")))  # no bias: a number for each column

    before = module_of([x], body)
    after = TurnTransposed()(before)
    assert names(after) == ["strided_slice", "nn.conv2d_transpose", "add", "clip"] * 2 + ["concat", "add"]
    array = RANDOM.standard_normal((1, 4, 5, 5)).astype("f4")
    np.testing.assert_allclose(run(after, array), run(before, array), rtol=1e-5, atol=1e-5)


def test_scales_of_a_dequantized_kernel_stay_with_their_channels() -> None:
    x = relax.Var("x", relax.TensorType((1, 4, 7, 7), "float32"))
    integers = relax.const(RANDOM.integers(-127, 128, (4, 3, 2, 2)).astype("i1"))
    scales, zeros = relax.const(np.array([0.1, 0.2, 0.3], "f4")), relax.const(np.zeros(3, "i1"))

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        weight = builder.emit(OP.dequantize(integers, scales, zeros, axis=1))
        return OP.nn.relu(builder.emit(OP.nn.conv2d_transpose(x, weight)))

    after = TurnTransposed()(module_of([x], body))
    (made,) = (b.value for b in bindings(after["main"]) if op_name(b.value) == "relax.nn.conv2d")
    weight = next(b.value for b in bindings(after["main"]) if b.var.same_as(made.args[1]))
    assert int(weight.attrs.axis) == 0 and array_of(weight.args[0]).shape == (3, 4, 2, 2)
    array = RANDOM.standard_normal((1, 4, 7, 7)).astype("f4")
    np.testing.assert_allclose(run(after, array), run(module_of([x], body), array), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "before",
    [
        layer((3, 3), strides=(2, 2)),
        layer((3, 3), padding=(3, 0)),
        layer((3, 3), channels=8, per_group=1, strides=(2, 2), groups=8),
    ],
    ids=["strides", "padding", "many groups"],
)
def test_others_are_left_alone(before: tvm.IRModule) -> None:
    tvm.ir.assert_structural_equal(TurnTransposed()(before), before, map_free_vars=True)
