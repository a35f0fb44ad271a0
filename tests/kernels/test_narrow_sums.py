"""Factors for sums of 32 bits or more give the right result for every pair of bytes, or no factors are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.operators.kinds import QBinary
from tests.kernels.helium_samples import BYTES, binary, tensor

SUMS = [
    binary("add", tensor(256, scale=0.031), tensor(256), tensor(256, scale=0.037)),
    binary("subtract", tensor(256), tensor(256, scale=0.0187), tensor(256, scale=0.0231)),
    binary("add", replace(BYTES, shape=(256,)), tensor(256), tensor(256, scale=0.041, zero_point=-128)),
]
LIMITS = [(31, 31), (45, 30)]
"""Numbers of bits: of a sum, and of a factor."""


@pytest.mark.parametrize("limits", LIMITS, ids=["32_bits", "46_bits"])
@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
@pytest.mark.parametrize("operator", SUMS, ids=["add", "subtract", "bytes"])
def test_every_pair_gets_its_element(
    operator: QBinary, rounding: Literal["onnx", "tflite"], limits: tuple[int, int]
) -> None:
    sum_bits, factor_bits = limits
    operator = replace(operator, rounding=rounding)
    found = narrow_sums(operator, sum_bits=sum_bits, factor_bits=factor_bits)
    assert found is not None
    assert max(abs(found.first), abs(found.second)) < 1 << factor_bits
    a, b = (np.arange(256, dtype=np.int64) + np.iinfo(tensor.dtype).min for tensor in operator.inputs)
    sums = found.start + found.first * a[:, None] + found.second * b
    assert np.abs(sums).max() + (1 << (found.shift - 1)) < 1 << sum_bits
    value = np.clip((sums + (1 << (found.shift - 1))) >> found.shift, operator.low, operator.high)
    pairs = [x.astype(t.dtype) for x, t in zip(np.broadcast_arrays(a[:, None], b), operator.inputs, strict=True)]
    np.testing.assert_array_equal(value, qbinary.reference(operator, pairs)[0])


def test_some_need_more_than_32_bits() -> None:
    """TensorFlow Lite's roundings move pairs of elements across a half that 32 bits cannot tell apart."""
    tensors = tensor(256, scale=0.0329, zero_point=-128), tensor(256, zero_point=4), tensor(256, scale=0.0244)
    operator = replace(binary("add", *tensors), rounding="tflite")
    assert narrow_sums(operator) is None
    assert narrow_sums(operator, sum_bits=45, factor_bits=30) is not None


def test_halves_to_even_have_none() -> None:
    """Two sums halfway between two results go up and down by turns, which no rounding of halves up gives."""
    quarters = tensor(256, scale=0.5, zero_point=0)
    assert narrow_sums(binary("add", quarters, quarters, tensor(256, scale=1.0, zero_point=0))) is None


def test_products_have_none() -> None:
    assert narrow_sums(binary("multiply", tensor(256), tensor(256), tensor(256, scale=0.01))) is None
