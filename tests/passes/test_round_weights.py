"""Weights of 4 bits: their scales, and rounding that keeps products with the inputs near, for every kind of layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm import relax

from relay_passes.analysis.correct_biases import MOST_DEPTH, rounded_weights
from relay_passes.analysis.int8_parameters import NIBBLES, nibble_scales, quantize_linear, round_by
from relay_passes.analysis.quantization_units import Unit, units_of

Array = np.ndarray


def layer(kind: str) -> tuple[Unit, Array]:
    """A linear unit, and inputs that resemble each other over channels and places."""
    random = np.random.default_rng(3)
    if kind == "matmul":
        shape, weight = (60, 12), random.normal(size=(12, 5))
    else:
        groups = 6 if kind == "depthwise" else 2 if kind == "groups" else 1
        channels_first = kind != "NHWC"
        shape = (2, 6, 9, 8) if channels_first else (2, 9, 8, 6)
        oihw = random.normal(size=(6, 6 // groups, 3, 2))
        weight = oihw if channels_first else oihw.transpose(0, 2, 3, 1)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    w = relax.const(weight.astype("float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            if kind == "matmul":
                product = relax.op.matmul(x, w)
            else:
                layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW"}
                if kind == "NHWC":
                    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
                product = relax.op.nn.conv2d(
                    x, w, strides=(2, 1), padding=(1, 0, 1, 0), dilation=(1, 2), groups=groups, **layouts
                )
            result = builder.emit_output(product)
        builder.emit_func_output(result)
    (unit,) = units_of(builder.get()["main"], frozenset())
    shared = random.normal(size=(*shape[:-1], 1)) if kind in ("matmul", "NHWC") else random.normal(size=(2, 1, 9, 8))
    return unit, (1 + shared + 0.2 * random.normal(size=shape)).astype("float32")


def products(unit: Unit, x: Array, weight: Array) -> Array:
    """The layer's sums by another reading than that of the code under test: torch's."""
    torch = pytest.importorskip("torch")
    if unit.operator == "relax.matmul":
        return x.astype("float64") @ weight
    attrs = unit.members[0].value.attrs
    if str(attrs.data_layout) == "NHWC":
        x, weight = x.transpose(0, 3, 1, 2), weight.transpose(0, 3, 1, 2)
    padded = torch.nn.functional.pad(torch.tensor(x.astype("float64")), (0, 0, 1, 1))
    kernel = torch.tensor(np.ascontiguousarray(weight))
    return torch.nn.functional.conv2d(
        padded, kernel, stride=(2, 1), dilation=(1, 2), groups=int(attrs.groups)
    ).numpy()  # fmt: skip


@pytest.mark.parametrize("kind", ["matmul", "NCHW", "NHWC", "groups", "depthwise"])
def test_products_with_the_inputs_come_nearer(kind: str) -> None:
    unit, x = layer(kind)
    assert unit.kind == "linear" and unit.weight is not None and unit.bias is not None
    nearest = nibble_scales(unit.weight, unit.axis, unit.bias, 0.1)
    one_by_one = round_by(unit.weight, unit.axis, nearest, NIBBLES)
    found, scale = rounded_weights(unit, [x[:1], x[1:]], nearest, NIBBLES) or pytest.fail("it is deep enough")
    assert found.shape == unit.weight.shape and found.dtype == np.int8 and scale.dtype == np.float32
    assert found.min() >= -8 and found.max() <= 7
    shape = [-1 if axis == unit.axis else 1 for axis in range(found.ndim)]
    wanted = products(unit, x, unit.weight.astype("float64"))

    def error(integers: Array, scales: Array) -> float:
        real = integers * scales.astype("float64").reshape(shape)
        return float(np.square(products(unit, x, real) - wanted).sum())

    assert error(found, scale) < 0.9 * error(one_by_one, nearest)


def test_deep_layers_are_rounded_one_by_one() -> None:
    unit, x = layer("matmul")
    deep = replace(unit, weight=np.ones((MOST_DEPTH + 1, 5), "float32"))
    assert rounded_weights(deep, [x], np.ones(5, "float32"), NIBBLES) is None


def test_scales_of_four_bits_have_the_least_squared_error() -> None:
    weight = np.array([[0.1] * 40 + [1.0], [0.0] * 41], "float32")
    scales = nibble_scales(weight, 0, np.zeros(2, "float32"), 0.1)
    linear = quantize_linear(weight, 0, np.zeros(2, "float32"), 0.1, (round_by(weight, 0, scales, NIBBLES), scales))
    assert linear.weight.max() == 7 and 0.4 / 7 <= linear.weight_scale[0] < 1 / 7
    plain = np.rint(weight[0] * 7) / 7
    assert np.square(linear.real_weight[0] - weight[0]).sum() <= np.square(plain - weight[0]).sum()
    assert not linear.weight[1].any() and linear.weight_scale[1] > 0
