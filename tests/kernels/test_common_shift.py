"""Forms for registers against the rounding of the portable kernels, over every sum that a layer reaches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.shared.common_shift import SHIFTS, CommonShift
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.kernels.shared.two_roundings import ScaledSums, TwoRoundings
from codegen_c.operators.kinds import Quantization, Rounding, TensorType

MANY = settings(max_examples=60, deadline=None, derandomize=True)
LARGEST = 40_000
factors = st.floats(2.0**-24, 0.9) | st.integers(1, 22).map(lambda bits: 2.0**-bits)


def requantize(
    values: list[float], dtype: str = "int8", zero_point: int = 0, rounding: Rounding = "onnx", low: int | None = None
) -> Requantize:
    limits = np.iinfo(dtype)
    output = TensorType(shape=(1, 1), dtype=dtype, quantization=Quantization(scale=1.0, zero_point=zero_point))
    least = int(limits.min) if low is None else low
    return Requantize.of(np.array(values), output=output, low=least, high=int(limits.max), rounding=rounding)


def elements(common: CommonShift, sums: np.ndarray) -> np.ndarray:
    """The elements as the C code has them: high products of 32 bits, shifted and saturated."""
    high = (sums * common.multiplier.astype(np.int64) >> 32) + common.rounding
    assert np.abs(high).max() < 1 << 31
    low, top = (0, 255) if common.is_unsigned else (-128, 127)
    return np.clip(high >> common.shift, low, top)


@MANY
@given(st.lists(factors, min_size=1, max_size=4), st.sampled_from(("int8", "uint8")), st.integers(0, 127))
@example([2.0**-3, 2.0**-4], "int8", 3)
@example([0.01, 2.0**-24], "uint8", 127)
def test_it_gives_the_same_elements_for_every_sum(values: list[float], dtype: str, zero_point: int) -> None:
    exact = requantize(values, dtype, zero_point)
    channels = len(values)
    low, high = np.full(channels, -LARGEST), np.full(channels, LARGEST - 1)
    common = CommonShift.of(exact, low, high)
    if common is None:
        return
    sums = np.broadcast_to(np.arange(-LARGEST, LARGEST)[:, None], (2 * LARGEST, channels)).astype(np.int64)
    np.testing.assert_array_equal(elements(common, sums), exact.run(sums))


@pytest.mark.parametrize(
    ("values", "rounding", "low", "is_there"),
    [
        ([0.003, 0.011], "onnx", -128, True),
        ([0.0003, 0.0005], "onnx", -128, True),
        ([0.125, 0.25], "onnx", -128, False),  # more than a multiplier of 31 bits by either shift
        ([0.003, 0.011], "tflite", -128, False),  # rounds twice
        ([0.003, 0.011], "onnx", -127, False),  # not all elements
    ],
)
def test_when_there_is_one(values: list[float], rounding: Rounding, low: int, is_there: bool) -> None:
    exact = requantize(values, rounding=rounding, low=low)
    limit = np.full(2, LARGEST)
    assert (CommonShift.of(exact, -limit, limit) is not None) == is_there


def test_a_step_that_no_multiplier_reaches_leaves_none() -> None:
    """Over sums of 2^30, steps of a factor are told apart by more bits than a multiplier has left."""
    exact = requantize([1.7e-7])
    assert CommonShift.of(exact, np.array([-(1 << 15)]), np.array([1 << 15])) is not None
    assert CommonShift.of(exact, np.array([-(1 << 30)]), np.array([1 << 30])) is None


def test_the_first_shift_that_does_is_taken() -> None:
    """So that layers share the code of few."""
    limit = np.full(1, LARGEST)
    assert SHIFTS[0] < SHIFTS[1]
    common = CommonShift.of(requantize([0.01]), -limit, limit)
    assert common is not None and common.shift == SHIFTS[0]


def elements_twice(form: TwoRoundings, sums: np.ndarray) -> np.ndarray:
    """The elements as the C code has them: rounded high products of 32 bits, shifted and saturated."""
    shift = form.shift.astype(np.int64)
    high = (2 * sums * form.multiplier.astype(np.int64) + (form.rounding << (shift + 32)) + (1 << 31)) >> 32
    assert np.abs(high).max() < 1 << 31
    return np.clip((high + (sums >> 63 if form.is_signed else 0)) >> (shift + 1), -128, 127)


@MANY
@given(st.lists(factors, min_size=1, max_size=4), st.sampled_from((-128, -127, 0, 127)))
@example([2.0**-3, 2.0**-4], 3)
@example([0.01, 2.0**-24], -128)
def test_two_roundings_give_the_same_elements_for_every_sum(values: list[float], zero_point: int) -> None:
    exact = requantize(values, zero_point=zero_point, rounding="tflite")
    low, high = np.full(len(values), -LARGEST), np.full(len(values), LARGEST - 1)
    form = TwoRoundings.of(exact, low, high)
    assert (form is None) == (max(values) >= 0.5), "a factor from 1/2 on leaves no shift to the right"
    if form is None:
        return
    assert form.is_signed == (zero_point > -128)
    sums = np.broadcast_to(np.arange(-LARGEST, LARGEST)[:, None], (2 * LARGEST, len(values))).astype(np.int64)
    np.testing.assert_array_equal(elements_twice(form, sums), exact.run(sums))


@pytest.mark.parametrize(("dtype", "rounding", "low"), [("uint8", "tflite", 0), ("int8", "onnx", -128)])
def test_two_roundings_are_for_int8_as_tensorflow_lite_rounds(dtype: str, rounding: Rounding, low: int) -> None:
    exact = requantize([0.003, 0.011], dtype, rounding=rounding, low=low)
    assert TwoRoundings.of(exact, np.full(2, -LARGEST), np.full(2, LARGEST)) is None
    less = requantize([0.003, 0.011], rounding="tflite", low=-127)
    assert TwoRoundings.of(less, np.full(2, -LARGEST), np.full(2, LARGEST)) is None
    whole = requantize([0.003, 0.011], rounding="tflite")
    assert TwoRoundings.of(whole, np.full(2, -LARGEST), np.full(2, 1 << 30)) is None, "twice the sum needs 32 bits"


def test_shifts_of_a_block_are_a_word_after_its_multipliers() -> None:
    form = TwoRoundings.of(
        requantize([0.3, 0.1, 0.01, 0.02], rounding="tflite"), np.full(4, -LARGEST), np.full(4, LARGEST)
    )
    assert form is not None and len(set(form.shift)) == 4
    pairs, fours = form.factors(2), form.factors(4)
    assert pairs.shape == (2, 3) and fours.shape == (1, 5)
    np.testing.assert_array_equal(pairs[:, :2].ravel(), form.multiplier)
    assert list(pairs[1, 2:].astype("<i4").view(np.uint8)) == [*form.shift[2:], 0, 0]
    assert list(fours[0, 4:].astype("<i4").view(np.uint8)) == list(form.shift)


def elements_scaled(form: ScaledSums, sums: np.ndarray) -> np.ndarray:
    """The elements as the C code has them, from sums that come 2^bits times."""
    scaled = sums << form.bits
    assert np.abs(scaled).max() < 1 << 31
    high = (scaled * form.multiplier.astype(np.int64) >> 32) + form.rounding
    return np.clip(high >> form.shift, -128, 127)


@MANY
@given(st.lists(factors, min_size=1, max_size=4))
@example([0.003, 0.03])
@example([2.0**-3, 2.0**-8])
@example([2.0**-19, 0.01])
@example([2.0**-26, 0.01])
def test_scaled_sums_give_the_same_elements_for_every_sum(values: list[float]) -> None:
    exact = requantize(values, zero_point=-128, rounding="tflite")
    low, high = np.full(len(values), -LARGEST), np.full(len(values), LARGEST - 1)
    form = ScaledSums.of(exact, low, high)
    if form is None:
        return
    assert form.bits.max() <= 8, "an int8 weight has 8 bits to spare"
    sums = np.broadcast_to(np.arange(-LARGEST, LARGEST)[:, None], (2 * LARGEST, len(values))).astype(np.int64)
    np.testing.assert_array_equal(elements_scaled(form, sums), exact.run(sums))


@pytest.mark.parametrize(
    ("values", "zero_point", "largest", "is_there"),
    [
        ([0.003, 0.03], -128, LARGEST, True),
        ([2.0**-19, 0.01], -128, LARGEST, True),  # with fewer bits of a multiplier
        ([0.003, 0.03], -127, LARGEST, False),  # negative sums reach elements above the least one
        ([0.00010312, 0.2], -128, 1 << 22, False),  # more than 8 bits apart, and too many steps for fewer bits
        ([0.003, 0.03], -128, 1 << 29, False),  # no bits to spare
    ],
)
def test_when_there_are_scaled_sums(values: list[float], zero_point: int, largest: int, is_there: bool) -> None:
    exact = requantize(values, zero_point=zero_point, rounding="tflite")
    form = ScaledSums.of(exact, np.full(2, -largest), np.full(2, largest))
    assert (form is not None) == is_there
    assert ScaledSums.of(requantize(values), np.full(2, -largest), np.full(2, largest)) is None
