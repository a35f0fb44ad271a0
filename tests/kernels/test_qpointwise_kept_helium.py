"""Helium pointwise convolutions of few channels on the host: the portable kernels' bytes, whatever the shape."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.helium.kernels import convolution as convolution_helium
from tests.kernels.helium import assert_same_bytes, takes
from tests.kernels.quantized import FEW, seeds
from tests.kernels.test_qconv2d_helium import convolutions

TAKEN = convolutions(pointwise=True).filter(takes(convolution_helium.QPOINTWISE_KEPT))


@settings(FEW, max_examples=3)
@given(operators=st.lists(TAKEN, min_size=1, max_size=5), seed=seeds)
def test_pointwise(operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(convolution_helium.QPOINTWISE_KEPT, operators, seed)
