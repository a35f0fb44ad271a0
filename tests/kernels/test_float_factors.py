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


@pytest.mark.parametrize(("scale", "zero_point"), [(0.005, -128), (0.005, 3), (0.008, 0), (0.004, 127)])
def test_every_sum_gets_its_element(scale: float, zero_point: int) -> None:
    operator = layer(scale, zero_point)
    finish, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    floats = FloatFactors.of(finish, low, high)
    assert floats is not None and floats.factors.dtype == floats.offsets.dtype == np.float32
    sums = np.clip(np.arange(low.min(), high.max() + 1)[:, None], low, high)
    # The sum of an exact product and an offset, rounded once to 32 bits: a fused multiply-add.
    fused = (sums * floats.factors.astype(np.float64) + floats.offsets).astype(np.float32)
    np.testing.assert_array_equal(np.clip(np.rint(fused), finish.low, finish.high), finish.run(sums))


def test_there_are_none_where_a_float_is_too_coarse() -> None:
    """Some of many sums of an element lie closer to its beginning than floats of 24 bits do."""
    operator = layer(0.01)
    scales = np.full(operator.weight.shape[0], 1e-5, dtype=np.float32)
    small = replace(operator, weight_scale=scales)
    finish, (low, high) = qconv2d.requantize(small), qconv2d.products(small).range()
    assert FloatFactors.of(finish, low, high) is None


def test_there_are_none_for_two_roundings() -> None:
    operator = replace(layer(0.01), rounding="tflite")
    assert FloatFactors.of(qconv2d.requantize(operator), *qconv2d.products(operator).range()) is None
