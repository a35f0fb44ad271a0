"""Constant channels of quantized layers: what becomes of them, and when a layer stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.composites.constant_channels import plain_constant_channels
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.dense import qdense
from codegen_c.operators.kinds import QConv2d, QDense, Quantization, Rounding, TensorType, Window
from tests.kernels.quantized import FEW, elements, seeds

DEAD_BIAS = 1 << 30
DEAD_SCALE = 2.0**-27
"""As converters write a channel that training has left without weights: they give sums of about 8 steps."""


def tensor(*shape: int, dtype: str = "int8", zero_point: int = -3) -> TensorType:
    return TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=0.25, zero_point=zero_point))


def convolution(
    dead: list[int], *, seed: int = 0, channels: int = 6, weight: int = 0, padding: int = 1, groups: int = 1,
    **fields: Any,
) -> QConv2d:  # fmt: skip
    """3x3 windows; channels `dead` have only weights of that number, and bias and scale at their ends."""
    random = np.random.default_rng(seed)
    weights = random.integers(-127, 128, (channels, 3, 3, channels // groups)).astype(np.int8)
    bias = random.integers(-5000, 5000, channels).astype(np.int32)
    scale = random.uniform(0.001, 0.01, channels).astype(np.float32)
    weights[dead], scale[dead] = weight, DEAD_SCALE
    bias[dead] = np.where(np.arange(len(dead)) % 2, -DEAD_BIAS, DEAD_BIAS)
    return QConv2d(
        inputs=(tensor(1, 4, 5, channels),), outputs=(tensor(1, 2 + 2 * padding, 3 + 2 * padding, channels),),
        weight=weights, weight_scale=scale, bias=bias, window=Window(kernel=(3, 3), padding=(padding,) * 4), low=-128,
        high=127, groups=groups, **fields,
    )  # fmt: skip


def dense(dead: list[int], scale: list[float], **fields: Any) -> QDense:
    random = np.random.default_rng(1)
    weights = random.integers(-127, 128, (4, 8)).astype(np.int8)
    bias = np.full(4, 100, np.int32)
    weights[dead], bias[dead] = 0, 3000
    source = replace(tensor(2, 8), quantization=Quantization(scale=0.3, zero_point=-3))
    return QDense(
        inputs=(source,), outputs=(tensor(2, 4),), weight=weights,
        weight_scale=np.array(scale, np.float32), bias=bias, low=-128, high=127, **fields,
    )  # fmt: skip


@FEW
@given(st.sampled_from(["onnx", "tflite"]), st.sampled_from([0, 1]), st.sampled_from([1, 6]), seeds)
def test_elements_stay_the_same(rounding: Rounding, padding: int, groups: int, seed: int) -> None:
    layer = convolution([1, 2, 5], seed=seed, padding=padding, groups=groups, rounding=rounding)
    plain = plain_constant_channels(layer)
    assert plain is not layer and not plain.weight[[1, 2, 5]].any()
    assert np.abs(np.array(qconv2d.bounds(plain))[:, [1, 2, 5]]).max() < 1 << 17
    np.testing.assert_array_equal(plain.weight[[0, 3, 4]], layer.weight[[0, 3, 4]])
    np.testing.assert_array_equal(plain.weight_scale[[0, 3, 4]], layer.weight_scale[[0, 3, 4]])
    for more in range(3):
        x = elements(layer.inputs[0], seed + more)
        np.testing.assert_array_equal(qconv2d.reference(plain, [x])[0], qconv2d.reference(layer, [x])[0])


def test_small_weights_whose_products_round_away() -> None:
    """The products of a channel are too small to change its element."""
    layer = convolution([0], weight=1, rounding="tflite")
    plain = plain_constant_channels(layer)
    assert not plain.weight[0].any()
    x = elements(layer.inputs[0], 2)
    np.testing.assert_array_equal(qconv2d.reference(plain, [x])[0], qconv2d.reference(layer, [x])[0])


def test_clamped_channels_are_constant_too() -> None:
    layer = convolution([], rounding="onnx")
    bias = np.where(np.arange(6) == 3, -(1 << 24), layer.bias).astype(np.int32)
    layer = replace(layer, bias=bias, low=-3)
    plain = plain_constant_channels(layer)
    assert not plain.weight[3].any() and plain.weight[[0, 1, 2, 4, 5]].any(axis=(1, 2, 3)).all()
    assert qconv2d.requantize(plain).run(plain.bias.astype(np.int64)[np.newaxis])[0, 3] == -3


@pytest.mark.parametrize(
    "layer",
    [
        convolution([]),
        replace(convolution([2]), inputs=(tensor(1, 4, 5, 6, dtype="int16", zero_point=0),)),
        replace(convolution([2]), bias=convolution([2]).bias.astype(np.int64)),
        replace(convolution([2], weight=127), bias=np.full(6, (1 << 31) - 1, np.int32)),  # sums beyond 32 bits
    ],
    ids=["none is constant", "16 bits", "wide bias", "sums do not fit"],
)
def test_layers_that_stay_as_they_are(layer: QConv2d) -> None:
    assert plain_constant_channels(layer) is layer


@pytest.mark.parametrize("scales", [[0.013] * 4, [0.013, 0.02, 0.03, 0.04]], ids=["one scale", "a scale each"])
def test_dense_layers_keep_their_elements(scales: list[float]) -> None:
    layer = dense([1], scales, rounding="tflite")
    plain, x = plain_constant_channels(layer), elements(layer.inputs[0], 3)
    assert plain is not layer
    np.testing.assert_array_equal(qdense.reference(plain, [x])[0], qdense.reference(layer, [x])[0])
