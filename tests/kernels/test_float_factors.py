"""Factors as floats: every sum of a layer gets the element that its own factor gives it, or there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.float_factors import FloatFactors
from codegen_c.operators.kinds import QConv2d
from tests.kernels.helium_samples import POINT, conv, tensor


def layer(scale: float, zero_point: int = -128) -> QConv2d:
    return conv(tensor(1, 5, 5, 16), tensor(1, 5, 5, 32, scale=scale, zero_point=zero_point), POINT)


@pytest.mark.parametrize(
    ("scale", "zero_point", "rounding"),
    [
        (0.005, -128, "onnx"), (0.005, 3, "onnx"), (0.008, 0, "onnx"), (0.004, 127, "onnx"), (0.005, -128, "tflite"),
        (0.005, 3, "tflite"),
    ],
)  # fmt: skip
def test_every_sum_gets_its_element(scale: float, zero_point: int, rounding) -> None:
    operator = replace(layer(scale, zero_point), rounding=rounding)
    finish, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    floats = FloatFactors.of(finish, low, high)
    assert floats is not None and floats.factors.dtype == floats.offsets.dtype == np.float32
    assert floats.has_signs == (rounding == "tflite" and zero_point > -128)
    sums = np.clip(np.arange(low.min(), high.max() + 1)[:, None], low, high)
    offsets = np.where(sums < 0, floats.negative_offsets, floats.offsets)
    # The sum of an exact product and an offset, rounded once to 32 bits: a fused multiply-add.
    fused = (sums * floats.factors.astype(np.float64) + offsets).astype(np.float32)
    np.testing.assert_array_equal(np.clip(np.rint(fused), finish.low, finish.high), finish.run(sums))


def test_a_single_element_has_factors() -> None:
    """All sums have the same element if the limits are equal."""
    finish, (low, high) = qconv2d.requantize(layer(0.005)), qconv2d.products(layer(0.005)).range()
    floats = FloatFactors.of(replace(finish, low=7, high=7), low, high)
    assert floats is not None and np.isfinite(floats.offsets).all()


def test_there_are_none_where_a_float_is_too_coarse() -> None:
    """Some of many sums of an element lie closer to its beginning than floats of 24 bits do."""
    deep = conv(tensor(1, 5, 5, 256), tensor(1, 5, 5, 32, scale=0.01, zero_point=0), POINT)
    small = replace(deep, weight_scale=np.linspace(2e-5, 2.3e-5, 32, dtype=np.float32))
    finish, (low, high) = qconv2d.requantize(small), qconv2d.products(small).range()
    assert FloatFactors.of(finish, low, high) is None
