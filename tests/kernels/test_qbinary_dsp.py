"""Sums and differences by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels import qbinary_dsp
from codegen_c.operators import QBinary
from tests.kernels.dsp import SOME, for_cortex_m4, taken_by
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qbinary import binaries


@SOME
@given(st.lists(taken_by(qbinary_dsp.KERNEL, binaries()), min_size=1, max_size=8), seeds)
def test_binaries(operators: list[QBinary], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(qbinary_dsp.KERNEL))
