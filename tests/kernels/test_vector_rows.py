"""Rows of tensors that are no images."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, StoredRows
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.vector_rows import Rows, as_image, rows_of
from codegen_c.operators.kinds import Elementwise
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from tests.kernels.float32 import assert_same_bits, elements, floats
from tests.kernels.harness import HOST, run_kernel

DOUBLED = Instruction(function="add", operands=(Operand(kind="input"), Operand(kind="input")))
BY_CHANNEL = Instruction(function="add", operands=(Operand(kind="input"), Operand(kind="channel")))


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((1, 4096), Rows(count=128, length=32, is_vector=True)),
        ((1, 1, 48), Rows(count=3, length=16, is_vector=True)),
        ((100,), Rows(count=25, length=4, is_vector=True)),
        ((32,), Rows(count=2, length=16, is_vector=True)),
        ((1, 7, 10), Rows(count=7, length=10, is_vector=False)),
        ((3, 2, 5), Rows(count=6, length=5, is_vector=False)),
        ((1, 4), None),
        ((1, 30), None),
        ((1, 8, 8, 3), None),
        ((), None),
    ],
)
def test_rows_by_shape(shape: tuple[int, ...], rows: Rows | None) -> None:
    assert rows_of(shape) == rows


def elementwise(shape: tuple[int, ...], instruction: Instruction, *others: tuple[int, ...]) -> Elementwise:
    constants = (np.arange(shape[-1], dtype=np.float32),) if instruction is BY_CHANNEL else ()
    program = ScalarProgram(instructions=(instruction,), channel_constants=constants)
    inputs = tuple(floats(*extents) for extents in (shape, *others))
    return Elementwise(inputs=inputs, outputs=(floats(*shape),), finish=program)


@pytest.mark.parametrize(
    ("operator", "image"),
    [
        (elementwise((1, 64), DOUBLED), (1, 2, 1, 32)),
        (elementwise((1, 64), BY_CHANNEL), None),
        (elementwise((5, 64), BY_CHANNEL), (1, 5, 1, 64)),
        (elementwise((5, 64), DOUBLED, (1, 64)), None),
        (elementwise((1, 5, 4, 3), DOUBLED), None),
    ],
)
def test_elementwise_operators_as_images(operator: Elementwise, image: tuple[int, ...] | None) -> None:
    found = as_image(operator)
    assert (found and found.output.shape) == image


@pytest.mark.parametrize("shape", [(1, 96), (4, 6)])
def test_by_rows_the_same_bits(shape: tuple[int, int]) -> None:
    operator = elementwise(shape, DOUBLED)
    whole = select(operator, HOST)
    assert isinstance(whole, Implementation) and whole.spatial is None and whole.in_rows is not None
    by_rows = whole.in_rows(StoredRows())
    assert by_rows.spatial is not None
    x = elements(operator.inputs[0], 0)
    rows = [(h, h + 1) for h in range(by_rows.spatial.output_rows)]
    (expected,) = run_kernel(operator, whole, [x])
    assert_same_bits(run_kernel(operator, by_rows, [x], rows)[0], expected)
    np.testing.assert_array_equal(by_rows.reference([x])[0], expected)
