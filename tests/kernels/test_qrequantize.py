"""Fixed-point factors and the one rounding, against exact fractions."""

from __future__ import annotations

import ctypes
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import CFunction, Implementation, Parameter
from codegen_c.kernels.shared.requantize import INCLUDES, Requantize, fixed_point, results_fit, round_shift
from codegen_c.operators.kinds import Quantization, TensorType
from tests.kernels.harness import compile_kernels

MANY = settings(max_examples=300, deadline=None, derandomize=True)
factors = st.floats(min_value=2.0**-40, max_value=2.0**29)


@MANY
@given(factors)
@example(1.0)
@example(1.0 - 2.0**-53)
@example(2.0**29)
def test_a_factor_is_the_nearest_of_31_bits(factor: float) -> None:
    mantissa, shift = fixed_point(factor)
    assert 1 <= shift <= 62
    assert mantissa < 1 << 31
    if mantissa:
        assert mantissa >= 1 << 30
        assert abs(Fraction(mantissa, 1 << shift) - Fraction(factor)) <= Fraction(factor) / (1 << 31)
    else:
        assert factor * 2.0**31 <= 0.5 * (1 + 2.0**-31)


def test_zero_stays_zero() -> None:
    assert fixed_point(0.0) == (0, 1)


@pytest.fixture(scope="module")
def round_shift_c() -> ctypes._FuncPointer:
    """tvm_ext_round_shift, called by way of pointers."""
    function = CFunction(
        parameters=(
            Parameter(name="value", ctype="int64_t", role="input"),
            Parameter(name="result", ctype="int32_t", role="output"),
            Parameter(name="shift", ctype="int32_t", role="row"),
        ),
        body="result[0] = tvm_ext_round_shift(value[0], shift);",
        includes=INCLUDES,
    )
    return compile_kernels([Implementation(kernel="round", function=function, reference=lambda inputs: inputs)])[0]


@MANY
@given(sum_=st.integers(-(2**31), 2**31 - 1), mantissa=st.integers(2**30, 2**31 - 1), shift=st.integers(31, 62))
@example(sum_=1, mantissa=2**30, shift=31)
@example(sum_=3, mantissa=2**30, shift=31)
@example(sum_=-1, mantissa=2**30, shift=31)
@example(sum_=-3, mantissa=2**30, shift=31)
@example(sum_=-(2**31), mantissa=2**31 - 1, shift=62)
def test_one_rounding_halves_to_even(round_shift_c, sum_: int, mantissa: int, shift: int) -> None:
    product = sum_ * mantissa
    # Python rounds fractions halves to even, exactly.
    expected = round(Fraction(product, 1 << shift))
    assert round_shift(np.array([product], dtype=np.int64), shift)[0] == expected
    result = np.zeros(1, np.int32)
    round_shift_c(ctypes.byref(ctypes.c_int64(product)), result.ctypes.data_as(ctypes.c_void_p), ctypes.c_int32(shift))
    assert result[0] == np.int64(expected).astype(np.int32)


def test_equal_factors_become_literals() -> None:
    output = TensorType(shape=(1, 2), dtype="int8", quantization=Quantization(scale=1.0, zero_point=0))
    same = Requantize.of(np.array([0.25, 0.25]), output=output, low=-128, high=127)
    different = Requantize.of(np.array([0.25, 0.5]), output=output, low=-128, high=127)
    assert same.is_uniform and not same.constants() and not same.parameters()
    assert [role for role, _ in different.constants()] == ["multiplier", "shift"]


@pytest.mark.parametrize("factor", [np.nan, np.inf, -0.5, 2.0**30])
def test_factors_out_of_range_do_not_fit(factor: float) -> None:
    assert not results_fit(np.array([0]), np.array([0]), np.array([factor]))
