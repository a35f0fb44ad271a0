"""A shift of all channels with roundings of their own, against the roundings themselves over every sum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.shared.own_rounding import SHIFTS, OwnRounding, first_in_window
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.operators.kinds import Rounding
from tests.kernels.test_common_shift import LARGEST, requantize

MANY = settings(max_examples=60, deadline=None, derandomize=True)
factors = st.floats(2.0**-24, 0.06) | st.integers(5, 22).map(lambda bits: 2.0**-bits)
bounds = st.tuples(st.integers(-LARGEST, 0), st.integers(0, LARGEST))


def elements(form: OwnRounding, sums: np.ndarray, more: np.ndarray) -> np.ndarray:
    """The elements as the C code has them: high products of 32 bits, shifted by `more` than the form and saturated."""
    scaled = sums + form.added << form.bits
    assert np.abs(scaled).max() < 1 << 31
    high = (scaled * form.multiplier.astype(np.int64) >> 32) + form.rounding
    assert np.abs(high).max() < 1 << 31
    low, top = (0, 255) if form.is_unsigned else (-128, 127)
    return np.clip(high >> (form.shift + more), low, top)


@MANY
@given(
    st.lists(st.tuples(factors, bounds, st.sampled_from((0, 8))), min_size=1, max_size=4),
    st.sampled_from(("int8", "uint8")),
    st.integers(0, 127),
    st.sampled_from(("onnx", "tflite", "litert")),
)
@example([(2.0**-5, (-LARGEST, LARGEST), 0), (2.0**-6, (-LARGEST, LARGEST), 8)], "int8", 3, "onnx")
@example([(0.01, (-LARGEST, LARGEST), 0), (2.0**-24, (0, 0), 8)], "uint8", 127, "litert")
def test_it_gives_the_same_elements_for_every_sum(
    channels: list[tuple[float, tuple[int, int], int]], dtype: str, zero_point: int, rounding: Rounding
) -> None:
    zero_point = int(np.iinfo(dtype).min) if rounding == "tflite" else zero_point
    exact = requantize([factor for factor, _, _ in channels], dtype, zero_point, rounding)
    low, high = (np.array(ends, np.int64) for ends in zip(*(pair for _, pair, _ in channels), strict=True))
    scale_bits = np.array([bits for _, _, bits in channels], np.int64)
    form = OwnRounding.of(exact, low, high, scale_bits)
    if form is None:
        return
    sums = np.arange(-LARGEST, LARGEST + 1)[:, None].repeat(len(channels), axis=1)
    sums = np.clip(sums, low, high)
    np.testing.assert_array_equal(elements(form, sums, scale_bits), exact.run(sums))


def test_sums_are_scaled_as_large_factors_need() -> None:
    """All channels then have the same shift."""
    exact = requantize([2.0**-18, 0.011, 0.07, 0.31, 2.0**-5, 2.0**-4, 0.0], "int8", -128, "tflite")
    limit = np.full(7, LARGEST)
    form = OwnRounding.of(exact, -limit, limit)
    assert form is not None and form.bits.tolist() == [0, 0, 2, 4, 1, 2, 0]
    sums = np.arange(-LARGEST, LARGEST + 1)[:, None].repeat(7, axis=1)
    np.testing.assert_array_equal(elements(form, sums, np.zeros(7, np.int64)), exact.run(sums))


@pytest.mark.parametrize("rounding", ["onnx", "tflite", "litert"])
def test_layers_of_ordinary_factors_have_a_form(rounding: Rounding) -> None:
    """256 channels of factors over a range of 64, with TensorFlow Lite's two roundings too where a ReLU follows."""
    values = np.random.default_rng(1).uniform(2.0**-11, 2.0**-5.1, 256)
    low, high = np.full(256, -LARGEST), np.full(256, LARGEST)
    for bits in (0, 8):
        form = OwnRounding.of(requantize(list(values), "int8", -128, rounding), low, high, np.full(256, bits))
        assert form is not None and form.shift == SHIFTS[0]


def test_two_roundings_below_zero_have_none() -> None:
    limit = np.full(2, LARGEST)
    exact = requantize([0.003, 0.011], zero_point=0, rounding="tflite")
    assert OwnRounding.of(exact, -limit, limit, np.zeros(2, np.int64)) is None


def test_only_all_elements_of_a_type() -> None:
    limit = np.full(2, LARGEST)
    part: Requantize = requantize([0.003, 0.011], low=-127)
    assert OwnRounding.of(part, -limit, limit, np.zeros(2, np.int64)) is None


def test_large_factors_have_none() -> None:
    """A multiplier of 31 bits is 2^-5 at most by the smaller shift."""
    limit, none = np.full(1, LARGEST), np.zeros(1, np.int64)
    assert OwnRounding.of(requantize([2.0**-4.9]), -limit, limit, none) is None
    assert OwnRounding.of(requantize([2.0**-5.1]), -limit, limit, none) is not None


@given(st.integers(0, 999), st.integers(0, 999), st.integers(0, 999))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_first_multiple_in_a_window(step: int, least: int, width: int) -> None:
    most = least + width
    found = first_in_window(step, least, most, 1000)
    tried = (n for n in range(1000) if (n * step - least) % 1000 <= width)
    assert found == next(tried, -1)


@pytest.mark.parametrize("short", [1, 2, 7])
def test_a_step_just_below_the_modulus_needs_few_turns(short: int) -> None:
    """Multiples of a step that is `short` less than the modulus go down by `short`."""
    modulus, wanted = 1 << 32, 3000 * short
    first = modulus - wanted
    assert first_in_window(modulus - short, first, first + short - 1, modulus) == wanted // short
