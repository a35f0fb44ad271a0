"""ShareMatrices: a stack of equal matrices is one."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, op_name, static_shape
from relay_passes.simplify.share_matrices import ShareMatrices
from tests.passes.modules import module_of
from tests.support.virtual_machine import run

MATRIX = np.random.default_rng(5).standard_normal((4, 6)).astype("f4")


def product(shape: tuple[int, ...], weight: np.ndarray) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    return module_of([x], lambda builder: relax.op.matmul(x, relax.const(weight)))


@pytest.mark.parametrize("stack", [(1,), (3,), (1, 3)])
def test_equal_matrices_become_one(stack: tuple[int, ...]) -> None:
    before = product((*stack, 5, 4), np.broadcast_to(MATRIX, (*stack, 4, 6)).copy())
    after = ShareMatrices()(before)
    relax.analysis.well_formed(after)
    (call,) = [b.value for b in bindings(after["main"]) if op_name(b.value) == "relax.matmul"]
    assert static_shape(call.args[1]) == (4, 6) and static_shape(call) == (*stack, 5, 6)
    array = np.random.default_rng(6).standard_normal((*stack, 5, 4)).astype("f4")
    np.testing.assert_array_equal(run(after, array), run(before, array))


@pytest.mark.parametrize(
    ("shape", "weight"),
    [
        ((2, 5, 4), np.stack([MATRIX, MATRIX + 1])),
        ((5, 4), MATRIX[None]),
        ((1, 5, 4), np.stack([MATRIX, MATRIX])),
        ((2, 5, 4), MATRIX),
    ],
    ids=["different", "axis of the weight", "stack of the weight", "one matrix"],
)
def test_others_are_left_alone(shape: tuple[int, ...], weight: np.ndarray) -> None:
    before = product(shape, weight)
    tvm.ir.assert_structural_equal(ShareMatrices()(before), before, map_free_vars=True)
