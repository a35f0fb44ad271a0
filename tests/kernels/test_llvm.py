"""TVM's own run of a module: bools are compared, remainders taken, and scalars stay scalars."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from codegen_c.tir.llvm import compiled_with_llvm


def module(operator: Callable[[relax.Var, relax.Var], relax.Expr], shape: tuple[int, ...], dtype: str) -> tvm.IRModule:
    block = relax.BlockBuilder()
    operands = [relax.Var(name, relax.TensorType(shape, dtype)) for name in "ab"]
    with block.function("main", operands):
        with block.dataflow():
            result = block.emit_output(operator(*operands))
        block.emit_func_output(result)
    return block.get()


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
@pytest.mark.parametrize(("operator", "expected"), [(relax.op.equal, [1, 0, 0, 1]), (relax.op.not_equal, [0, 1, 1, 0])])
def test_comparisons(operator: Callable[..., relax.Expr], expected: list[int], dtype: str) -> None:
    a, b = np.array([0, 0, 1, 1], dtype), np.array([0, 1, 0, 1], dtype)
    (found,) = compiled_with_llvm(module(operator, (4,), dtype))([a, b])
    np.testing.assert_array_equal(found, np.array(expected, bool))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_scalars(dtype: str) -> None:
    (found,) = compiled_with_llvm(module(relax.op.mod, (), dtype))([np.array(-7.5, dtype), np.array(2, dtype)])
    assert found.shape == () and found == -1.5


@pytest.mark.parametrize(("operator", "worst"), [(relax.op.max, -np.inf), (relax.op.min, np.inf)])
def test_extremes_of_infinities(operator: Callable[..., relax.Expr], worst: float) -> None:
    """The least of infinities is infinite: TVM begins with the largest finite float."""
    (found,) = compiled_with_llvm(module(lambda a, b: operator(a + b, axis=[1]), (2, 3), "float32"))(
        [np.full((2, 3), worst, np.float32), np.array([[0, 0, 0], [1, worst, 2]], np.float32)]
    )
    np.testing.assert_array_equal(found, [worst, worst])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("operator", "function"), [(relax.op.tanh, np.tanh), (relax.op.atanh, np.arctanh)])
def test_functions_are_accurate_near_zero(
    operator: Callable[..., relax.Expr], function: Callable[[np.ndarray], np.ndarray], dtype: str
) -> None:
    """A difference of nearly equal numbers, as TVM writes these, gives 0."""
    a = np.array([1e-20, -3e-9, 3e-5, 0.3], dtype)
    (found,) = compiled_with_llvm(module(lambda x, _: operator(x), (4,), dtype))([a, a])
    np.testing.assert_allclose(found, function(a), rtol=4 * np.finfo(dtype).eps)
