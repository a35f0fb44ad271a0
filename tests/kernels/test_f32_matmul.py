"""Products of two float activations: vectors of floats and single ones, any layout, whole and by rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kept, StoredRows
from codegen_c.kernels.matmul import matmul_f32
from codegen_c.operators.kinds import Matmul, MatmulShape
from codegen_c.operators.scalar import ScalarProgram
from tests.kernels.dsp import for_cortex_m4
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
from tests.kernels.harness import HOST, run_kernel, run_ring

SOME = settings(FEW, max_examples=3)


@st.composite
def matmuls(draw: st.DrawFn) -> Matmul:
    rows, heads, columns = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 21))
    depth, inside = draw(st.integers(1, 12)), draw(st.booleans())
    outer = (rows, heads) if inside else (heads, rows)
    order = draw(st.permutations((0, 1, 2)))  # the second tensor's axes, of heads, columns, depth
    extents = (heads, columns, depth)
    second = tuple(extents[axis] for axis in order)
    steps = [int(np.prod(second[order.index(axis) + 1 :], dtype=int)) for axis in range(3)]
    finish, residuals = draw(finishes(columns))
    output = floats(1, *outer, columns)
    return Matmul(
        inputs=(floats(1, *outer, depth), floats(1, 1, *second), *(output,) * residuals), outputs=(output,),
        finish=behind_two(finish),
        shape=MatmulShape(
            rows=rows, heads=heads, depth=depth, columns=columns, heads_inside=inside,
            steps=(steps[0], steps[1], steps[2]),
        ),
    )  # fmt: skip


def behind_two(finish: ScalarProgram) -> ScalarProgram:
    """The program with its residuals as third and further inputs."""
    instructions = tuple(
        replace(i, operands=tuple(replace(o, index=o.index + 1) if o.kind == "input" else o for o in i.operands))
        for i in finish.instructions
    )
    return replace(finish, instructions=instructions)


def samples(operators: list[Matmul], seed: int) -> list[list[np.ndarray]]:
    return [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]


@SOME
@given(st.lists(matmuls(), min_size=3, max_size=5), seeds)
def test_vectors_of_floats(operators: list[Matmul], seed: int) -> None:
    assert_kernel(operators, samples(operators, seed), matmul_f32.KERNEL)


@SOME
@given(st.lists(matmuls(), min_size=3, max_size=5), seeds)
def test_single_floats(operators: list[Matmul], seed: int) -> None:
    assert_kernel(operators, samples(operators, seed), for_cortex_m4(matmul_f32.KERNEL))


@pytest.mark.parametrize(("at_once", "shift"), [(8, 0), (8, 3), (5, 2), (3, 1)])
def test_blocks_stay_together_in_rings(at_once: int, shift: int) -> None:
    """Blocks of vectors where no ring starts over inside a block, single vectors elsewhere: the same bits."""
    operator = Matmul(
        inputs=(floats(1, 21, 2, 7), floats(1, 1, 2, 6, 7)), outputs=(floats(1, 21, 2, 6),), finish=ScalarProgram(),
        shape=MatmulShape(rows=21, heads=2, depth=7, columns=6, heads_inside=True, steps=(42, 7, 1)),
    )  # fmt: skip
    kernel = for_cortex_m4(matmul_f32.KERNEL)
    whole = kernel.implement(operator, HOST, StoredRows())
    ring = Kept(stored=at_once + 1, shift=shift)
    stored = StoredRows(inputs=(ring,), output=ring, at_once=at_once)
    (arrays,) = samples([operator], 3)
    made = kernel.implement(operator, HOST, stored)
    assert ("while (m < row_end)" in made.function.body) == (at_once + 1 >= 4)
    (expected,), (found,) = run_kernel(operator, whole, arrays), run_ring(operator, made, stored, arrays)
    np.testing.assert_array_equal(found, expected)
    by_vector = replace(stored, inputs=(Kept(stored=1),), output=Kept(stored=1), at_once=1)
    dear = kernel.implement(operator, HOST, by_vector).instructions
    assert dear > made.instructions or at_once < 4


def scores(*, steps: tuple[int, int, int], finish: ScalarProgram) -> Matmul:
    """Two rows, two heads of three elements, two columns."""
    return Matmul(
        inputs=(floats(1, 2, 2, 3), floats(1, 2, 2, 3)), outputs=(floats(1, 2, 2, 2),), finish=finish,
        shape=MatmulShape(rows=2, heads=2, depth=3, columns=2, heads_inside=True, steps=steps),
    )  # fmt: skip


def test_heads_are_read_as_they_lie() -> None:
    """Whole numbers: queries [row, head, c], keys [row, head, c], scores [query, head, key] halved."""
    operator = scores(steps=(3, 6, 1), finish=program(("multiply", value(), number(0.5))))
    q = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
    k = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3) - 4
    expected = np.einsum("brhc,bnhc->brhn", q, k) / 2
    np.testing.assert_array_equal(run_once(operator, matmul_f32.KERNEL, [q, k]), expected)


def test_residuals_of_another_shape_are_refused() -> None:
    operator = scores(steps=(3, 6, 1), finish=behind_two(program(("add", value(), replace(value(1), kind="input")))))
    operator = replace(operator, inputs=(*operator.inputs, floats(1, 1, 1, 2)))
    refusal = matmul_f32.KERNEL.refuses(operator, HOST)
    assert refusal is not None and "must have the result's shape" in refusal.reason
