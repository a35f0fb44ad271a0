"""Planes turned channels-last by Helium on the host: the bytes of numpy, whole, by rows, and to a ring of rows."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c.kernels.contract import Kept, StoredRows
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from tests.kernels.harness import call_rows, compile_kernels, run_kernel
from tests.kernels.helium import implementation
from tests.kernels.helium_side_samples import SAMPLES
from tests.kernels.quantized import elements

KERNEL = elementwise_helium.PERMUTE
RING = Kept(stored=2, shift=1)


@pytest.mark.parametrize("name", ["planes", "planes_cut"])
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
