"""Float interpolation: C against the reference, with whole rows and by rows; single floats and the lanes of vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.movement import interpolate_f32
from codegen_c.operators.kinds import Interpolate
from tests.kernels.dsp import for_cortex_m4
from tests.kernels.float32 import FEW, assert_kernel, elements, floats, run_once, seeds
from tests.kernels.interpolation_taps import taps

SOME = settings(FEW, max_examples=3)


@st.composite
def interpolations(draw: st.DrawFn) -> Interpolate:
    height, width, *sizes = (draw(st.integers(1, 7)) for _ in range(4))
    count, channels = draw(st.sampled_from(((1, 3), (1, 1), (2, 2), (1, 9), (1, 16))))
    kinds = st.sampled_from(("linear", "linear", "cubic", "mean"))
    return Interpolate(
        inputs=(floats(count, height, width, channels),), outputs=(floats(count, *sizes, channels),),
        rows=taps(height, sizes[0], draw(kinds)), columns=taps(width, sizes[1], draw(kinds)),
    )  # fmt: skip


@SOME
@given(st.lists(interpolations(), min_size=4, max_size=8), seeds)
def test_interpolations(operators: list[Interpolate], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    assert_kernel(operators, inputs, interpolate_f32.KERNEL)
    assert_kernel(operators, inputs, for_cortex_m4(interpolate_f32.KERNEL))


def test_by_hand() -> None:
    """A row of 0 and 4 becomes 0, 1, 3, 4 at half-pixel centres, in both channels."""
    one = (np.zeros((1, 1), np.int64), np.ones((1, 1), np.float32))
    operator = Interpolate(inputs=(floats(1, 1, 2, 2),), outputs=(floats(1, 1, 4, 2),), rows=one, columns=taps(2, 4))
    found = run_once(operator, interpolate_f32.KERNEL, [np.array([[[[0, 0], [4, -4]]]], np.float32)])
    np.testing.assert_array_equal(found, [[[[0, 0], [1, -1], [3, -3], [4, -4]]]])
