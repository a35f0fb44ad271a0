"""Float pooling: maximum, average, and what happens at the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.pooling import pool2d_f32
from codegen_c.operators.kinds import Pool2d, Window
from tests.kernels.float32 import FEW, assert_kernel, elements, finishes, floats, run_once, seeds
from tests.kernels.harness import HOST


@st.composite
def pools(draw: st.DrawFn) -> Pool2d:
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    padding = tuple(draw(st.integers(0, kernel[axis % 2] - 1)) for axis in range(4))
    window = Window(
        kernel=kernel,
        strides=draw(st.tuples(st.integers(1, 3), st.integers(1, 3))),
        padding=(padding[0], padding[1], padding[2], padding[3]),
    )
    batch, channels = draw(st.sampled_from((1, 1, 2))), draw(st.integers(1, 7))
    size = [draw(st.integers(kernel[axis], kernel[axis] + 5)) for axis in (0, 1)]
    grown = [size[axis] + padding[axis] + padding[axis + 2] for axis in (0, 1)]
    out = [(grown[axis] - kernel[axis]) // window.strides[axis] + 1 for axis in (0, 1)]
    finish, residuals = draw(finishes(channels))
    output = floats(batch, *out, channels)
    return Pool2d(
        inputs=(floats(batch, *size, channels), *(output,) * residuals),
        outputs=(output,),
        method=draw(st.sampled_from(("max", "average"))),
        window=window,
        count_include_pad=draw(st.booleans()),
        finish=finish,
    )


@FEW
@given(st.lists(pools(), min_size=3, max_size=6), seeds)
def test_pool2d(operators: list[Pool2d], seed: int) -> None:
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    assert_kernel(operators, inputs, pool2d_f32.KERNEL)


def pool(method: str, window: Window, size: int, *, include: bool = False) -> Pool2d:
    out = (size + window.padding[0] + window.padding[2] - window.kernel[0]) // window.strides[0] + 1
    return Pool2d(
        inputs=(floats(1, size, size, 1),), outputs=(floats(1, out, out, 1),), method=method, window=window,
        count_include_pad=include,
    )  # fmt: skip


PADDED = Window(kernel=(2, 2), padding=(1, 1, 1, 1))


@pytest.mark.parametrize(
    ("method", "include", "expected"),
    [
        ("max", False, [[-1, -1, -2], [-1, -1, -2], [-3, -3, -4]]),
        ("average", False, [[-1, -1.5, -2], [-2, -2.5, -3], [-3, -3.5, -4]]),
        ("average", True, [[-0.25, -0.75, -0.5], [-1, -2.5, -1.5], [-0.75, -1.75, -1]]),
    ],
)
def test_padding_by_hand(method: str, include: bool, expected: list[list[float]]) -> None:
    """Padding never wins a maximum, and counts in an average only where asked."""
    operator = pool(method, PADDED, 2, include=include)
    x = np.array([-1, -2, -3, -4], np.float32).reshape(1, 2, 2, 1)
    for result in (run_once(operator, pool2d_f32.KERNEL, [x]), pool2d_f32.reference(operator, [x])[0]):
        np.testing.assert_array_equal(result[0, :, :, 0], np.array(expected, np.float32))


def test_infinities() -> None:
    x = np.array([-np.inf, -np.inf, -np.inf, np.inf], np.float32).reshape(1, 2, 2, 1)
    operator = pool("max", Window(kernel=(1, 2)), 2)
    operator = Pool2d(inputs=operator.inputs, outputs=(floats(1, 2, 1, 1),), method="max", window=operator.window)
    np.testing.assert_array_equal(run_once(operator, pool2d_f32.KERNEL, [x]).ravel(), [-np.inf, np.inf])


@pytest.mark.parametrize("window", [Window(kernel=(2, 2)), PADDED], ids=["plain", "padded"])
def test_nan_stays_where_it_is_the_last_of_its_window(window: Window) -> None:
    x = np.array([1, np.nan, np.nan, 4], np.float32).reshape(1, 2, 2, 1)
    operator = pool("max", window, 2)
    found = run_once(operator, pool2d_f32.KERNEL, [x])
    np.testing.assert_array_equal(found, pool2d_f32.reference(operator, [x])[0])
    expected = [4] if window is not PADDED else [1, np.nan, np.nan, np.nan, 4, 4, np.nan, 4, 4]
    np.testing.assert_array_equal(found.ravel(), np.array(expected, np.float32))


@pytest.mark.parametrize(
    "window", [Window(kernel=(2, 2), dilation=(2, 2)), Window(kernel=(1, 1), padding=(1, 0, 0, 0))], ids=str
)
def test_windows_that_may_be_empty_are_refused(window: Window) -> None:
    refusal = pool2d_f32.KERNEL.refuses(pool("max", window, 4), HOST)
    assert refusal is not None and "at least one element of the input" in refusal.reason
