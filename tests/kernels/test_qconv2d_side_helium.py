"""Helium convolutions of four pixels side by side on the host: the portable kernels' bytes, whatever the shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.convolution import qconv2d
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.helium.kernels import side as side_helium
from codegen_c.targets.helium.kernels.four_factors import NarrowFactors, RoundedFactors
from tests.kernels.helium import M55, assert_same_bytes, implementation, takes
from tests.kernels.helium_samples import POINT, conv, tensor
from tests.kernels.helium_side_samples import SAMPLES
from tests.kernels.quantized import FEW, seeds
from tests.kernels.test_qconv2d_helium import convolutions
from tests.support.sweeps import some_of

KERNEL = side_helium.KERNEL
NAMES = sorted(name for name in SAMPLES if name.startswith("side"))
IN_PLACE = [name for name in NAMES if "in_place" in name]


@st.composite
def wide(draw: st.DrawFn) -> QConv2d:
    """Any convolution whose elements have all values of their type, of a multiple of four channels."""
    operator = draw(convolutions(pointwise=draw(st.booleans())))
    info = np.iinfo(operator.output.dtype)
    return replace(operator, low=int(info.min), high=int(info.max))


@settings(FEW, max_examples=3)
@given(operators=st.lists(wide().filter(takes(KERNEL)), min_size=1, max_size=4), seed=seeds)
def test_any(operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(KERNEL, operators, seed)


@pytest.mark.parametrize("names", some_of([NAMES[::2], IN_PLACE], sweep=[NAMES[1::2]]), ids=lambda names: names[0])
def test_samples(names: list[str]) -> None:
    assert_same_bytes(KERNEL, [SAMPLES[name][1] for name in names], 3)


@pytest.mark.parametrize("name", NAMES)
def test_pixels_of_as_many_channels_take_the_input_s_place(name: str) -> None:
    """Where four of them may lie in two rows: otherwise the output lies no more than a row below the input."""
    operator = SAMPLES[name][1]
    assert isinstance(operator, QConv2d)
    made = implementation(KERNEL, operator, StoredRows())
    assert made.in_place == ((0,) if "in_place" in name else ())
    assert implementation(KERNEL, operator, StoredRows(at_once=1)).in_place == ()


@pytest.mark.parametrize(("columns", "in_place"), [(7, (0,)), (8, ())])
def test_only_pixels_of_two_rows_are_copied(columns: int, in_place: tuple[int, ...]) -> None:
    operator = conv(tensor(1, 3, columns, 32), tensor(1, 3, columns, 32, scale=0.3), POINT)
    made = implementation(KERNEL, operator, StoredRows())
    assert made.in_place == in_place and (made.scratch_bytes > 0) == bool(in_place)
    assert made.spatial is not None and made.spatial.rows_still_read == 0


@pytest.mark.parametrize(("columns", "rows"), [(1, 3), (2, 2), (3, 1), (7, 1), (8, 0)])
def test_rows_of_four_pixels_are_read_until_all_channels_are_written(columns: int, rows: int) -> None:
    """The first of four pixels lies that many rows before the last, and each channel reads it again."""
    operator = conv(tensor(1, 24, columns, 32), tensor(1, 24, columns, 8, scale=0.3), POINT)
    made = implementation(KERNEL, operator, StoredRows())
    assert made.spatial is not None and made.spatial.rows_still_read == rows


def test_narrow_factors_give_every_sum_its_element() -> None:
    """Factors are compared for all sums that a small layer can have."""
    operator = SAMPLES["side_pixels_16"][1]
    assert isinstance(operator, QConv2d)
    finish, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    factors = NarrowFactors.of(finish, low, high)
    assert factors is not None
    sums = np.clip(np.arange(low.min(), high.max() + 1)[:, None], low, high)
    product = (sums * factors.multipliers) >> 31
    value = (product + (1 << (factors.shift - 1))) >> factors.shift
    zero_point = operator.output.quantization.zero_point if operator.output.quantization else 0
    np.testing.assert_array_equal(np.clip(value + zero_point, -128, 127), finish.run(sums))


@pytest.mark.parametrize("name", ["side_twice", "side_twice_clamped"])
def test_rounded_factors_give_every_sum_its_element(name: str) -> None:
    """Halves of products below zero are rounded down, unless all negative sums are clamped."""
    operator = SAMPLES[name][1]
    assert isinstance(operator, QConv2d)
    finish, (low, high) = qconv2d.requantize(operator), qconv2d.products(operator).range()
    factors = RoundedFactors.of(finish)
    assert factors is not None and factors.is_signed == (name == "side_twice")
    sums = np.clip(np.arange(low.min(), high.max() + 1)[:, None], low, high)
    product = (sums * factors.multipliers + (1 << 30)) >> 31
    product -= (product < 0) if factors.is_signed else 0
    value = (product + (1 << (factors.shifts - 1))) >> factors.shifts
    zero_point = operator.output.quantization.zero_point if operator.output.quantization else 0
    np.testing.assert_array_equal(np.clip(value + zero_point, -128, 127), finish.run(sums))


def test_no_rounded_factors_for_sums_that_are_scaled_up() -> None:
    operator = SAMPLES["side_twice"][1]
    assert isinstance(operator, QConv2d)
    large = replace(operator, weight_scale=np.full_like(operator.weight_scale, 100.0))
    assert RoundedFactors.of(qconv2d.requantize(large)) is None
    assert KERNEL.refuses(large, M55) is not None
    clamped = replace(operator, low=-100)
    assert RoundedFactors.of(qconv2d.requantize(clamped)) is None


def test_no_narrow_factors_for_channels_far_apart() -> None:
    """A shift that suits the largest factor leaves the smallest one too few bits."""
    operator = SAMPLES["side_pixels_16"][1]
    assert isinstance(operator, QConv2d)
    scales = np.geomspace(1e-9, 0.3, operator.weight.shape[0]).astype(np.float32)
    apart = replace(operator, weight_scale=scales)
    assert NarrowFactors.of(qconv2d.requantize(apart), *qconv2d.products(apart).range()) is None
    assert KERNEL.refuses(apart, M55) is not None
