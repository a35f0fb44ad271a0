"""The fast requantization against both roundings in exact integers, wherever it is taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.requantize import Requantize, round_shift
from codegen_c.operators.kinds import Quantization, Rounding, TensorType
from codegen_c.targets.dsp.kernels.product import FastRequantize

MANY = settings(max_examples=400, deadline=None, derandomize=True)
OUTPUT = TensorType(shape=(1, 1), dtype="int8", quantization=Quantization(scale=1.0, zero_point=-7))
mantissas = st.integers(1 << 30, (1 << 31) - 1) | st.integers(64, 127).map(lambda m: m << 24) | st.just(0)


def requantize(mantissa: int, shift: int, rounding: Rounding) -> Requantize:
    return Requantize(
        mantissa=np.array([mantissa], np.int32), shift=np.array([shift], np.uint8), output=OUTPUT,
        low=-128, high=127, rounding=rounding,
    )  # fmt: skip


@MANY
@given(st.sampled_from(("onnx", "tflite")), mantissas, st.integers(31, 60), st.integers(4, 31), st.integers(0, 2**32))
@example("onnx", 1 << 30, 38, 20, 0)
@example("onnx", (1 << 31) - 1, 53, 31, 0)
@example("tflite", (1 << 31) - 1, 52, 30, 0)
@example("tflite", 1 << 30, 40, 12, 0)
def test_fast_is_exact(rounding: Rounding, mantissa: int, shift: int, bits: int, seed: int) -> None:
    largest = np.array([(1 << bits) - 1])
    exact = requantize(mantissa, shift, rounding)
    fast = FastRequantize.of(exact, -largest, largest)
    if not fast.is_fast:
        assert fast.exact is exact
        return
    random = np.random.default_rng(seed).integers(-largest[0], largest[0] + 1, 200)
    powers = np.int64(1) << np.arange(bits, dtype=np.int64)
    sums = np.concatenate([random, powers, -powers, largest, -largest])
    m, half = int(fast.exact.mantissa[0]), int(fast.exact.shift[0])
    if rounding == "onnx":
        high, expected = sums * m >> 32, round_shift(sums * mantissa, shift)
    else:
        high = (2 * sums * m + (1 << 31)) >> 32
        high, expected = high + (sums >> 63), requantize_tflite.multiply(sums, mantissa, shift)
    total = high + (2 * -7 + 1) * (1 << half)
    assert np.abs(total).max() < 1 << 31
    np.testing.assert_array_equal(total >> (half + 1), expected - 7)


@pytest.mark.parametrize(
    ("mantissa", "shift", "bits", "is_fast"),
    [
        ((1 << 30) + 1, 38, 20, True),
        (1 << 30, 38, 20, False),  # 2^7 is a tie
        (1 << 30, 38, 7, True),  # no sum reaches it
        ((1 << 30) + 1, 32, 20, False),  # nothing left to shift
        ((1 << 30) + 1, 60, 20, True),  # all results are the zero point
        ((1 << 30) + 1, 60, 30, False),
    ],
)
def test_when_it_is_fast(mantissa: int, shift: int, bits: int, is_fast: bool) -> None:
    largest = np.array([(1 << bits) - 1])
    assert FastRequantize.of(requantize(mantissa, shift, "onnx"), -largest, largest).is_fast == is_fast


def test_one_slow_channel_makes_all_slow() -> None:
    exact = Requantize(
        mantissa=np.array([(1 << 30) + 1, 1 << 30], np.int32), shift=np.array([38, 38], np.uint8), output=OUTPUT,
        low=-128, high=127,
    )  # fmt: skip
    largest = np.array([1 << 20, 1 << 20])
    assert not FastRequantize.of(exact, -largest, largest).is_fast
    assert FastRequantize.of(exact, -largest // (1 << 16), largest // (1 << 16)).is_fast
