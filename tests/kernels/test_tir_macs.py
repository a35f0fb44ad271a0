"""Multiply-accumulates of plain C: those of the operator's definition."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from codegen_c.tir.composite import lower_composite
from codegen_c.tir.plain_c import PlainC
from tests.kernels.tir_cases import Case

IMAGE, MATRIX = ((1, 3, 6, 5), "float32"), ((3, 5), "float32")


def weights(*shape: int) -> relax.Expr:
    return relax.const(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize(
    ("build", "inputs", "macs"),
    [
        (lambda x: op.matmul(x, weights(5, 4)), (MATRIX,), 3 * 5 * 4),
        (lambda x: op.matmul(x, relax.const(np.full((5, 4), 0.5, np.float32))), (MATRIX,), 3 * 5 * 4),
        (lambda x, y: op.matmul(x, op.permute_dims(y)), (MATRIX, MATRIX), 3 * 5 * 3),
        (lambda x: op.nn.relu(op.nn.conv2d(x, weights(4, 3, 3, 3), padding=(1, 1))), (IMAGE,), 4 * 30 * 27),
        (lambda x: op.nn.conv2d(x, weights(3, 1, 3, 3), groups=3), (IMAGE,), 3 * 12 * 9),
        (lambda x: op.matmul(op.astype(x, "int32"), op.astype(op.permute_dims(x), "int32")), (((3, 5), "int8"),), 45),
        (lambda x: op.sum(x, 1), (MATRIX,), 0),
        (lambda x: op.add(op.multiply(x, x), x), (MATRIX,), 0),
        (lambda x: op.nn.max_pool2d(x, (2, 2)), (IMAGE,), 0),
        (lambda x: op.sum(op.multiply(x, x), 1), (MATRIX,), 15),
        (lambda x: op.nn.softmax(x, -1), (MATRIX,), 0),
    ],
)  # fmt: skip
def test_products_that_are_summed(
    build: Callable[..., relax.Expr], inputs: tuple[tuple[tuple[int, ...], str], ...], macs: int
) -> None:
    plain = lower_composite(Case(name="counted", build=build, inputs=inputs).function())
    assert isinstance(plain, PlainC)
    assert plain.macs == macs
