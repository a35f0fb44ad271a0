"""Kernels of RISC-V's vectors: C with its plain fallback against the portable kernels' references."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from codegen_c.kernels.contract import Kernel
from codegen_c.operators.kinds import Operator
from codegen_c.targets.registry import target_of
from codegen_c.targets.riscv_vector.kernels import depthwise as depthwise_rvv
from codegen_c.targets.riscv_vector.kernels import elementwise as elementwise_rvv
from codegen_c.targets.riscv_vector.kernels import pooling as pooling_rvv
from codegen_c.targets.riscv_vector.kernels import products as products_rvv
from tests.kernels.dsp import SOME
from tests.kernels.on_target import for_target, taken_on
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds, varied
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qconv2d import convolutions
from tests.kernels.test_qdense import dense_layers
from tests.kernels.test_qpool2d import pools
from tvm_ext.core.platform import Platform

ZVE32X = target_of(Platform.load("riscv32_zve32x").processor)
STRATEGIES = {
    elementwise_rvv.KERNEL: binaries(),
    products_rvv.QCONV2D: convolutions(),
    depthwise_rvv.KERNEL: convolutions(depthwise=True),
    products_rvv.QDENSE: dense_layers(),
    pooling_rvv.KERNEL: pools(),
}
"""Kernels, and operators that most of them take."""


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    @settings(SOME, max_examples=2)
    @given(varied(taken_on(ZVE32X, kernel, STRATEGIES[kernel]), least=2, most=5), seeds)
    def check(operators: list[Operator], seed: int) -> None:
        inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
        assert_c_equals_reference(operators, inputs, for_target(kernel, ZVE32X))

    check()
