"""Convolutions by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels import qconv2d_dsp
from codegen_c.operators import QConv2d
from tests.kernels.dsp import SOME, for_cortex_m4, taken_by
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qconv2d import convolutions


@SOME
@given(st.lists(taken_by(qconv2d_dsp.KERNEL, convolutions()), min_size=1, max_size=5), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(qconv2d_dsp.KERNEL))
