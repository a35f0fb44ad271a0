"""Requantization in 32 bits against both roundings in exact integers, wherever it is taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.operators.kinds import Array, Rounding
from codegen_c.targets.armv6m.kernels.requantize import NarrowRequantize
from tests.kernels.test_qrequantize_dsp import mantissas, requantize


def elements(narrow: NarrowRequantize, sums: Array) -> Array:
    """Elements of the C code's sums, int64[...] of one channel: tvm_ext_armv6m_element in numpy."""
    begin, span, m, c, *more = (int(value) for value in narrow.factors.view(np.uint32)[0])
    bits, word = narrow.fraction_bits, 1 << 32
    distance = (sums - begin) % word
    distance = np.where(distance <= span, distance, np.where(distance >= word // 2, 0, span))
    assert (distance * (m & ((1 << bits) - 1)) < word).all() and (distance * (m >> bits) < word).all()
    product = distance * (m >> bits) + (distance * (m & ((1 << bits) - 1)) >> bits)
    if more:
        product = product + np.where(distance >= more[0], more[1], 0)
    return ((product + c) % word >> 24).astype(np.uint8).view(np.int8)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.sampled_from(("onnx", "tflite")), mantissas, st.integers(29, 44), st.integers(4, 28),
    st.integers(-(10**6), 10**6), st.integers(0, 2**32),
)  # fmt: skip
@example("onnx", 1 << 30, 38, 20, 0, 0)
@example("tflite", 1 << 30, 38, 20, 5, 0)
@example("onnx", (1 << 31) - 1, 31, 20, 5, 0)
@example("onnx", 0, 40, 20, 0, 0)
def test_narrow_is_exact(rounding: Rounding, mantissa: int, shift: int, bits: int, start: int, seed: int) -> None:
    largest, begin = np.array([(1 << bits) - 1]), np.array([start])
    exact = requantize(mantissa, shift, rounding)
    narrow = NarrowRequantize.of(exact, low=-largest, high=largest, start=begin)
    if narrow.fraction_bits == 0:
        assert narrow.factors.tolist() == [[start, mantissa, shift, 0]]
        return
    random = np.random.default_rng(seed)
    near = random.integers(-1000, 1001, 1000) * max(1, int(2.0**shift / max(mantissa, 1) / 2))
    near = np.clip(np.concatenate([near - 1, near, near + 1]), -largest, largest)
    sums = np.concatenate([random.integers(-largest[0], largest[0] + 1, 1000), near, largest, -largest])
    np.testing.assert_array_equal(elements(narrow, sums - start), exact.run(sums[:, np.newaxis])[:, 0])


@pytest.mark.parametrize(
    ("mantissa", "shift", "is_narrow"),
    [
        ((1 << 30) + 12345, 40, True),  # 1000 units of a sum to an output step
        (1 << 30, 40, False),  # every other tie goes up, those between them down
        ((1 << 30) + 12345, 56, False),  # 2^26: 32 bits leave too little of the factor
    ],
)
def test_when_it_is_narrow(mantissa: int, shift: int, is_narrow: bool) -> None:
    largest = np.array([(1 << 30) - 1])
    narrow = NarrowRequantize.of(requantize(mantissa, shift, "onnx"), low=-largest, high=largest, start=np.array([0]))
    assert (narrow.fraction_bits > 0) == is_narrow


@pytest.mark.parametrize("shift", [38, 40, 42])
def test_halves_of_negative_sums(shift: int) -> None:
    """TensorFlow Lite rounds them away from zero: one constant cannot place the steps on both sides of zero."""
    largest, start = np.array([1 << 17]), np.array([-77])
    exact = requantize((1 << 30) + 123457, shift, "tflite")
    narrow = NarrowRequantize.of(exact, low=-largest, high=largest, start=start)
    assert narrow.has_two_constants and narrow.factors.shape == (1, 6)
    sums = np.arange(-largest[0], largest[0] + 1)
    np.testing.assert_array_equal(elements(narrow, sums - start), exact.run(sums[:, np.newaxis])[:, 0])


def test_one_wide_channel_makes_all_wide() -> None:
    exact = Requantize(
        mantissa=np.array([(1 << 30) + 1] * 2, np.int32), shift=np.array([40, 56], np.uint8),
        output=requantize(1, 1, "onnx").output, low=-128, high=127,
    )  # fmt: skip
    largest, start = np.array([(1 << 30) - 1] * 2), np.array([3, 4])
    narrow = NarrowRequantize.of(exact, low=-largest, high=largest, start=start)
    assert narrow.fraction_bits == 0 and narrow.factors[:, 0].tolist() == [3, 4]
