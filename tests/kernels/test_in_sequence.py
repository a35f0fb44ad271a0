"""A kernel in a sequence: what the search for rows counts on is what it does there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.kernels.contract import Kept, StoredRows
from codegen_c.program.sequences import in_sequence
from tests.kernels.helium import implementation
from tests.kernels.helium_samples import SAMPLES


@pytest.mark.parametrize("name", [name for name in SAMPLES if "squares" in name or "in_place" in name])
def test_no_ring_is_shared_with_what_does_not_take_its_input_s_place(name: str) -> None:
    """Kernels of several rows read further ones behind the first they write, unless they see the whole image."""
    kernel, operator = SAMPLES[name]
    whole = implementation(kernel, operator, StoredRows())
    promised = in_sequence(replace(whole, keeping=lambda stored: implementation(kernel, operator, stored))).in_place
    ring = Kept(stored=4)
    stored = StoredRows(inputs=(ring,), output=ring, at_once=2, call_rows=frozenset({1, 2}))
    assert set(promised) <= set(implementation(kernel, operator, stored).in_place)
