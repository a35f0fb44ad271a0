"""Float dense layers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.dense import dense_f32
from codegen_c.operators.kinds import Dense
from tests.kernels.float32 import FEW, assert_close, assert_kernel, elements, finishes, floats, run_once, seeds

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
SIZES = st.tuples(st.integers(1, 20), st.integers(1, 9))


@st.composite
def layers(
    draw: st.DrawFn,
    shapes: st.SearchStrategy[tuple[int, ...]] = SHAPES,
    sizes: st.SearchStrategy[tuple[int, int]] = SIZES,
) -> Dense:
    """shapes: in front of the last axis. sizes: depth and channels."""
    rows, (depth, channels) = draw(shapes), draw(sizes)
    finish, residuals = draw(finishes(channels))
    random = np.random.default_rng(draw(seeds))
    output = floats(*rows, channels)
    return Dense(
        inputs=(floats(*rows, depth), *(output,) * residuals),
        outputs=(output,),
        weight=random.normal(size=(channels, depth)).astype(np.float32),
        bias=random.normal(size=channels).astype(np.float32),
        finish=finish,
    )


@FEW
@given(st.lists(layers(), min_size=3, max_size=6), seeds)
def test_dense(operators: list[Dense], seed: int) -> None:
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    assert_kernel(operators, inputs, dense_f32.KERNEL)


@pytest.mark.parametrize("channels", range(1, 8))
@pytest.mark.parametrize("rows", [1, 2])
def test_every_tail_counts_by_hand(rows: int, channels: int) -> None:
    """Whole numbers: the products are exact, so is the result."""
    operator = Dense(
        inputs=(floats(rows, 3),),
        outputs=(floats(rows, channels),),
        weight=np.arange(channels * 3, dtype=np.float32).reshape(channels, 3),
        bias=np.arange(channels, dtype=np.float32) * 100,
    )
    x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) - 2
    expected = [[100 * k + sum(x[m, c] * (3 * k + c) for c in range(3)) for k in range(channels)] for m in range(rows)]
    np.testing.assert_array_equal(run_once(operator, dense_f32.KERNEL, [x]), np.array(expected, np.float32))


def test_reference_adds_the_bias_before_it_finishes() -> None:
    operator = Dense(
        inputs=(floats(1, 1),), outputs=(floats(1, 1),), weight=np.ones((1, 1), np.float32),
        bias=np.array([0.5], np.float32),
    )  # fmt: skip
    assert_close(dense_f32.reference(operator, [np.full((1, 1), 2, np.float32)])[0], np.full((1, 1), 2.5, np.float32))
