"""Helium depthwise convolutions with taps in lanes, on the host: the portable kernels' bytes, whatever the shape."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.helium.kernels import qdepthwise_taps_helium
from tests.kernels.helium import assert_same_bytes, takes
from tests.kernels.quantized import FEW, seeds
from tests.kernels.test_qdepthwise_helium import depthwise


@settings(FEW, max_examples=3)
@given(st.lists(depthwise().filter(takes(qdepthwise_taps_helium.KERNEL)), min_size=1, max_size=4), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(qdepthwise_taps_helium.KERNEL, operators, seed)
