"""Float softmax and log-softmax."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.softmax import softmax_f32
from codegen_c.operators.kinds import Softmax
from tests.kernels.dsp import for_cortex_m4
from tests.kernels.float32 import FEW, assert_kernel, elements, floats, run_once, seeds


@st.composite
def softmaxes(draw: st.DrawFn) -> Softmax:
    shape = (*draw(st.lists(st.integers(1, 4), max_size=3)), draw(st.integers(1, 20)))
    return Softmax(inputs=(floats(*shape),), outputs=(floats(*shape),), log=draw(st.booleans()))


@FEW
@given(st.lists(softmaxes(), min_size=3, max_size=8), seeds, st.sampled_from((1.0, 30.0)))
def test_softmax(operators: list[Softmax], seed: int, spread: float) -> None:
    inputs = [[elements(operator.inputs[0], seed) * np.float32(spread)] for operator in operators]
    assert_kernel(operators, inputs, softmax_f32.KERNEL)
    assert_kernel(operators, inputs, for_cortex_m4(softmax_f32.KERNEL))


@pytest.mark.parametrize("log", [False, True])
def test_large_values_do_not_overflow(log: bool) -> None:
    operator = Softmax(inputs=(floats(1, 3),), outputs=(floats(1, 3),), log=log)
    x = np.array([[3e38, 3e38, -3e38]], np.float32)
    result = run_once(operator, softmax_f32.KERNEL, [x])
    if log:
        np.testing.assert_array_equal(result[0, 2], -np.inf)
    else:
        np.testing.assert_array_equal(result, [[0.5, 0.5, 0]])


def test_minus_infinity_is_probability_zero() -> None:
    operator = Softmax(inputs=(floats(1, 2),), outputs=(floats(1, 2),))
    x = np.array([[-np.inf, 5]], np.float32)
    np.testing.assert_array_equal(run_once(operator, softmax_f32.KERNEL, [x]), [[0, 1]])


def test_exponentials_are_right_to_a_few_parts_in_ten_million() -> None:
    """Each beside the largest element; what is below the smallest normal number is 0."""
    x = np.stack([np.linspace(-60, 0, 4001, dtype=np.float32), np.zeros(4001, np.float32)], axis=-1)
    operator = Softmax(inputs=(floats(4001, 2),), outputs=(floats(4001, 2),))
    found = run_once(operator, softmax_f32.KERNEL, [x])
    np.testing.assert_allclose(found, softmax_f32.reference(operator, [x])[0], rtol=4e-7)
    assert (run_once(operator, softmax_f32.KERNEL, [x - np.float32([90, 0])])[:, 0] == 0).all()


def test_a_nan_is_seen_in_all_of_its_vector() -> None:
    operator = Softmax(inputs=(floats(2, 9),), outputs=(floats(2, 9),))
    x = np.zeros((2, 9), np.float32)
    x[1, 8] = np.nan
    found = run_once(operator, softmax_f32.KERNEL, [x])
    assert np.isnan(found[1]).all() and not np.isnan(found[0]).any()
