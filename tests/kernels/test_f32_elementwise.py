"""Float element-wise chains: broadcasts, rows, in place, and what NaN and infinities become."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.elementwise import elementwise_f32
from codegen_c.operators.kinds import Elementwise, TensorType
from codegen_c.operators.scalar import Operand
from tests.kernels.float32 import (
    FEW,
    assert_kernel,
    elements,
    finishes,
    floats,
    number,
    program,
    run_once,
    seeds,
    value,
)
from tests.kernels.harness import HOST

FIRST, SECOND = Operand(kind="input", index=0), Operand(kind="input", index=1)


@st.composite
def chains(draw: st.DrawFn) -> Elementwise:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    finish, residuals = draw(finishes(shape[-1], first=FIRST))
    others = [draw(st.sampled_from((shape, shape, shape[-1:], (1,)))) for _ in range(residuals)]
    return Elementwise(
        inputs=(floats(*shape), *(floats(*other) for other in others)), outputs=(floats(*shape),), finish=finish
    )


@FEW
@given(st.lists(chains(), min_size=3, max_size=8), seeds)
def test_elementwise(operators: list[Elementwise], seed: int) -> None:
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    assert_kernel(operators, inputs, elementwise_f32.KERNEL)


def test_a_tensor_of_rank_zero() -> None:
    operator = Elementwise(inputs=(floats(),), outputs=(floats(),), finish=program(("add", FIRST, number(0.25))))
    assert_kernel([operator], [[elements(floats(), 0)]], elementwise_f32.KERNEL)


def test_only_inputs_of_the_output_s_shape_may_be_overwritten() -> None:
    operator = Elementwise(
        inputs=(floats(3), floats(2, 3), floats(1)), outputs=(floats(2, 3),),
        finish=program(("add", FIRST, SECOND), ("add", value(1), Operand(kind="input", index=2))),
    )  # fmt: skip
    inputs = [elements(t, i) for i, t in enumerate(operator.inputs)]
    assert_kernel([operator], [inputs], elementwise_f32.KERNEL)
    assert elementwise_f32.KERNEL.implement(operator, HOST, StoredRows()).in_place == (1,)


@pytest.mark.parametrize("other", [(2, 1), (2,), (3, 2, 2), (1, 2, 3)], ids=str)
def test_other_broadcasts_are_refused(other: tuple[int, ...]) -> None:
    operator = Elementwise(
        inputs=(floats(2, 2, 3), TensorType(shape=other, dtype="float32")), outputs=(floats(2, 2, 3),),
        finish=program(("add", FIRST, SECOND)),
    )  # fmt: skip
    refusal = elementwise_f32.KERNEL.refuses(operator, HOST)
    assert refusal is not None and "the length of the last axis" in refusal.reason


def test_a_program_of_the_accumulated_element_is_refused() -> None:
    operator = Elementwise(inputs=(floats(3),), outputs=(floats(3),), finish=program(("abs", value())))
    refusal = elementwise_f32.KERNEL.refuses(operator, HOST)
    assert refusal is not None and "must not read an accumulated element" in refusal.reason


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        (program(("maximum", FIRST, number(0.0))), [np.nan, np.inf, 0, 0, 0, 1, 0]),
        (program(("minimum", FIRST, number(0.5))), [np.nan, 0.5, -np.inf, 0, 0, 0.5, -1]),
        (
            program(("maximum", FIRST, number(-0.5)), ("minimum", value(1), number(0.5))),
            [np.nan, 0.5, -0.5, 0, 0, 0.5, -0.5],
        ),
    ],
    ids=["relu", "minimum", "clip"],
)  # fmt: skip
def test_nan_goes_through_and_infinities_are_clamped(finish: object, expected: list[float]) -> None:
    operator = Elementwise(inputs=(floats(7),), outputs=(floats(7),), finish=finish)
    for result in (run_once(operator, elementwise_f32.KERNEL, [SPECIAL]), operator.finish.run(None, [SPECIAL])):
        np.testing.assert_array_equal(result, np.array(expected, np.float32))
