"""Axes in another order, for every element type: exact."""

from __future__ import annotations

import itertools

import numpy as np

from codegen_c.kernels.contract import Kept, StoredRows
from codegen_c.kernels.movement import permute
from codegen_c.operators.kinds import Permute, TensorType
from codegen_c.program.tensors import DTYPES
from tests.kernels.harness import HOST, compile_kernels, run_accumulating, run_kernel


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


def test_rows_that_come_in_turn_become_rows_of_every_channel() -> None:
    operators = [permutation((1, 6, 4, channels), (0, 3, 1, 2), "int8") for channels in (2, 5)]
    for operator in operators:
        whole = permute.KERNEL.implement(operator, HOST, StoredRows())
        assert whole.accumulating is not None and whole.accumulating.row_counts == (6,)
        x = np.arange(operator.output.num_elements, dtype=np.int8).reshape(operator.inputs[0].shape)
        for at_once in (1, 4):
            made = whole.accumulating.implement(6, StoredRows(inputs=(Kept(stored=at_once),), at_once=at_once))
            (found,) = run_accumulating(operator, made, [x], parts=6, at_once=at_once)
            np.testing.assert_array_equal(found.reshape(operator.output.shape), x.transpose(operator.axes))
            np.testing.assert_array_equal(made.reference([x])[0], x.transpose(operator.axes))


def test_only_a_whole_image_that_becomes_channels_first_takes_rows() -> None:
    others = [
        permutation((1, 6, 4, 5), (0, 2, 3, 1), "int8"),
        permutation((2, 6, 4, 5), (0, 3, 1, 2), "int8"),
        permutation((1, 1, 4, 5), (0, 3, 1, 2), "int8"),
        part((1, 6, 4, 5), (0, 3, 1, 2), (0, 0, 0, 0), (1, 5, 3, 4)),
    ]
    assert all(permute.KERNEL.implement(one, HOST, StoredRows()).accumulating is None for one in others)
