"""Float interpolation in C gives the reference's results: whole images and single rows, with and without vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from codegen_c.composites.graph import Composite, NoMatch
from codegen_c.composites.interpolation import ImageTaps, image_taps
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


X = relax.Var("x", relax.TensorType((1, 2, 4, 4), "float32"))
HALVES = np.full((1, 1, 4, 1), 0.5, np.float32)


def rows(*places: int) -> relax.Expr:
    return relax.op.take(X, relax.const(np.array(places, np.int32)), axis=2)


def row(place: int) -> relax.Expr:
    """Take a single row by a scalar index, which removes the axis of rows."""
    return relax.op.take(X, relax.const(np.int32(place)), axis=2)


def taps_of_sum(first: relax.Expr, second: relax.Expr, weights: np.ndarray) -> ImageTaps | NoMatch:
    """Build a composite that multiplies both values by the weights and adds the products, and read its taps."""
    builder = relax.BlockBuilder()
    with builder.function("main", [X]):
        with builder.dataflow():
            products = [builder.emit(relax.op.multiply(builder.emit(x), relax.const(weights))) for x in (first, second)]
            total = builder.emit_output(relax.op.add(*products))
        builder.emit_func_output(total)
    composite = Composite.read(builder.get()["main"])
    shapes = (composite.inputs[0].shape, composite.outputs[0].shape)
    return image_taps(composite.calls, composite.function.params[0], shapes, composite.calls[-1].var)


def test_a_sum_of_weighted_rows_is_read() -> None:
    found = taps_of_sum(rows(0, 0, 1, 2), rows(0, 1, 2, 3), HALVES)
    assert isinstance(found, ImageTaps) and found.before == found.after == (1, 2, 4, 4)
    np.testing.assert_array_equal(found.columns[0], [[0, 0], [0, 1], [1, 2], [2, 3]])
    np.testing.assert_array_equal(found.columns[1], [[1, 0], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("first", "second", "weights"),
    [
        (rows(0, 1, -1, 2), rows(0, 0, 1, 2), HALVES),
        (rows(0, 1, 4, 2), rows(0, 0, 1, 2), HALVES),
        (row(1), row(2), np.float32(0.5)),
        (rows(0, 1, 2, 3), rows(0, 0, 1, 2), np.full((1, 1, 1, 4, 1), 0.5, np.float32)),
        (rows(1), rows(0, 0, 1, 2), HALVES),
    ],
    ids=["from the end", "past the end", "one index", "weights of a further axis", "rows repeated by weights"],
)
def test_other_sums_are_no_interpolation(first: relax.Expr, second: relax.Expr, weights: np.ndarray) -> None:
    """Other code computes these sums. Reading them must not raise an error of numpy."""
    assert isinstance(taps_of_sum(first, second, weights), NoMatch)
