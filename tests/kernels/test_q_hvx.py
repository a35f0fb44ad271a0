"""Kernels of Hexagon's HVX: C with its plain fallback against the portable kernels' references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from codegen_c.kernels.contract import Kernel
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.operators.kinds import Operator, QBinary
from codegen_c.targets.hexagon.kernels import depthwise as depthwise_hvx
from codegen_c.targets.hexagon.kernels import elementwise as elementwise_hvx
from codegen_c.targets.hexagon.kernels import pooling as pooling_hvx
from codegen_c.targets.hexagon.kernels import products as products_hvx
from codegen_c.targets.registry import target_of
from tests.kernels.dsp import SOME
from tests.kernels.helium_samples import binary, tensor
from tests.kernels.on_target import for_target, taken_on
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds, varied
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qconv2d import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.kernels.test_qpool2d import pools
from tvm_ext.core.platform import Platform

HVX = target_of(Platform.load("hexagon_v66").processor)
STRATEGIES = {
    elementwise_hvx.KERNEL: binaries(),
    products_hvx.QCONV2D: convolutions(),
    depthwise_hvx.KERNEL: convolutions(depthwise=True),
    products_hvx.QDENSE: dense_layers(),
    pooling_hvx.KERNEL: pools(),
}
"""Kernels, and operators that most of them take."""
PAIRS = 1 << 16
THRICE = [
    replace(
        binary(
            function, tensor(PAIRS, scale=0.1154, zero_point=24),
            tensor(PAIRS, scale=0.1854, zero_point=-34),
            tensor(PAIRS, scale=0.0072, zero_point=62),
        ),
        rounding="tflite",
    )
    for function in ("add", "subtract")
]  # fmt: skip
"""Sums without factors of 32 bits for all pairs of elements, so that they are rounded three times."""


def all_pairs() -> list[np.ndarray]:
    """Each element of int8 beside each other one."""
    elements_of_type = np.arange(-128, 128, dtype=np.int8)
    return [np.repeat(elements_of_type, 256), np.tile(elements_of_type, 256)]


@pytest.mark.parametrize("operator", THRICE, ids=["add", "subtract"])
def test_all_pairs_of_a_sum_that_is_rounded_three_times(operator: QBinary) -> None:
    assert narrow_sums(operator) is None
    assert_c_equals_reference([operator], [all_pairs()], for_target(elementwise_hvx.KERNEL, HVX))


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    @settings(SOME, max_examples=2)
    @given(varied(taken_on(HVX, kernel, STRATEGIES[kernel]), least=2, most=5), seeds)
    def check(operators: list[Operator], seed: int) -> None:
        inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
        assert_c_equals_reference(operators, inputs, for_target(kernel, HVX))

    check()
