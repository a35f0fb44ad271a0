"""Axes in another order, for every element type: exact."""

from __future__ import annotations

import itertools

import numpy as np

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.movement import permute
from codegen_c.operators.kinds import Permute, TensorType
from codegen_c.program.tensors import DTYPES
from tests.kernels.harness import HOST, compile_kernels, run_kernel


def part(shape: tuple[int, ...], axes: tuple[int, ...], first: tuple[int, ...], taken: tuple[int, ...]) -> Permute:
    """Permutation of which only a part is made: `taken` places along each axis from `first` on."""
    source = TensorType(shape=shape, dtype="int8")
    return Permute(inputs=(source,), outputs=(TensorType(shape=taken, dtype="int8"),), axes=axes, first=first)


def permutation(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> Permute:
    source = TensorType(shape=shape, dtype=dtype)
    return Permute(inputs=(source,), outputs=(TensorType(shape=tuple(shape[a] for a in axes), dtype=dtype),), axes=axes)


def check(operators: list[Permute]) -> None:
    implementations = [permute.KERNEL.implement(operator, HOST, StoredRows()) for operator in operators]
    entries = compile_kernels(implementations)
    for operator, implementation, entry in zip(operators, implementations, entries, strict=True):
        source = operator.inputs[0]
        x = (np.arange(source.num_elements) % (2 if source.dtype == "bool" else 100)).astype(source.dtype)
        x = x.reshape(source.shape)
        (found,) = run_kernel(operator, implementation, [x], entry=entry)
        first = operator.first or (0,) * x.ndim
        taken = tuple(slice(at, at + extent) for at, extent in zip(first, operator.output.shape, strict=True))
        np.testing.assert_array_equal(found, x.transpose(operator.axes)[taken])
        np.testing.assert_array_equal(implementation.reference([x])[0], found)


def test_every_order_of_four_axes() -> None:
    check([permutation((2, 3, 4, 5), axes, "float32") for axes in itertools.permutations(range(4))])


def test_other_ranks_and_extents_of_one() -> None:
    cases = [((), ()), ((3,), (0,)), ((2, 3), (1, 0)), ((1, 3, 1, 2), (2, 3, 0, 1)), ((1, 1), (1, 0))]
    check([permutation(shape, axes, "int8") for shape, axes in [*cases, ((2, 3, 2, 1, 2), (4, 2, 0, 3, 1))]])


def test_every_element_type() -> None:
    check([permutation((2, 3, 4), (2, 0, 1), dtype) for dtype in DTYPES])


def test_a_part() -> None:
    """Columns of an image that is turned channels-last, and other parts."""
    check([
        part((1, 3, 5, 8), (0, 2, 3, 1), (0, 0, 2, 0), (1, 5, 4, 3)),
        part((1, 3, 5, 8), (0, 2, 3, 1), (0, 1, 7, 1), (1, 4, 1, 2)),
        part((4, 6), (1, 0), (2, 1), (3, 2)),
    ])  # fmt: skip
