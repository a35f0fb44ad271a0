"""Dense layers by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codegen_c.operators.kinds import QDense
from codegen_c.targets.dsp.kernels import qdense_dsp
from tests.kernels.dsp import SOME, for_cortex_m4, taken_by
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qdense import dense_layers


@SOME
@given(st.lists(taken_by(qdense_dsp.KERNEL, dense_layers()), min_size=1, max_size=6), seeds)
def test_dense(operators: list[QDense], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(qdense_dsp.KERNEL))
