"""Transposed bytes by Helium on the host: the bytes of numpy, whole; planes by rows and to a ring of rows, too."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c.kernels.contract import Kept, StoredRows
from codegen_c.operators.kinds import Permute
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from tests.kernels.harness import call_rows, compile_kernels, run_kernel
from tests.kernels.helium import M55, implementation
from tests.kernels.helium_samples import tensor
from tests.kernels.helium_side_samples import SAMPLES
from tests.kernels.quantized import elements

KERNEL = elementwise_helium.PERMUTE
RING = Kept(stored=2, shift=1)


@pytest.mark.parametrize(
    ("source", "axes", "first", "shape"),
    [
        ((1, 5, 7, 3), (0, 3, 1, 2), (), ()),
        ((3, 21, 34), (0, 2, 1), (), ()),
        ((9400, 3), (1, 0), (), ()),
        ((1, 4, 6, 5), (0, 1, 3, 2), (0, 1, 1, 2), (1, 3, 4, 3)),
    ],
)
def test_matrices(
    source: tuple[int, ...], axes: tuple[int, ...], first: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    shape = shape or tuple(source[axis] for axis in axes)
    operator = Permute(inputs=(tensor(*source),), outputs=(tensor(*shape),), axes=axes, first=first)
    whole = implementation(KERNEL, operator, StoredRows())
    inputs = [elements(operator.inputs[0], 4)]
    (entry,) = compile_kernels([whole])
    np.testing.assert_array_equal(run_kernel(operator, whole, inputs, entry=entry)[0], whole.reference(inputs)[0])


@pytest.mark.parametrize(
    ("source", "axes"),
    [((2, 3, 4), (1, 0, 2)), ((2, 3, 4, 5), (3, 2, 1, 0)), ((9500, 9500), (1, 0)), ((1, 1, 8, 20), (0, 2, 3, 1))],
)
def test_refusals(source: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """Runs of bytes, reversed axes, elements too far apart on both sides, and a copy."""
    shape = tuple(source[axis] for axis in axes)
    operator = Permute(inputs=(tensor(*source),), outputs=(tensor(*shape),), axes=axes)
    refusal = KERNEL.refuses(operator, M55)
    assert refusal is not None
    assert "must transpose a matrix" in refusal.reason


@pytest.mark.parametrize("name", ["planes", "planes_cut", "planes_many"])
def test_planes(name: str) -> None:
    operator = SAMPLES[name][1]
    whole = implementation(KERNEL, operator, StoredRows())
    by_rows = implementation(KERNEL, operator, StoredRows(output=RING))
    entry, ring_entry = compile_kernels([whole, by_rows])
    inputs = [elements(operator.inputs[0], 4)]
    expected = whole.reference(inputs)[0]
    np.testing.assert_array_equal(run_kernel(operator, whole, inputs, entry=entry)[0], expected)
    ring = np.zeros((1, RING.stored, *expected.shape[2:]), expected.dtype)
    for row in range(expected.shape[1]):
        call_rows(ring_entry, by_rows, inputs, [ring], row, row + 1)
        np.testing.assert_array_equal(ring[0, RING.slot(row)], expected[0, row])
