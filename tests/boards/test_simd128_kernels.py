"""Kernels of WebAssembly's vectors in wasmtime: the instructions themselves against the numpy references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kernel, StoredRows
from codegen_c.operators.kinds import Operator
from tests.boards.test_dsp_kernels import run_on_board
from tests.kernels.on_target import taken_on
from tests.kernels.quantized import elements, seeds
from tests.kernels.test_q_simd128 import SIMD128, STRATEGIES
from tvm_ext.core.platform import Platform

pytestmark = pytest.mark.wasm_board

PLATFORM = Platform.load("wasm")


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    """One firmware of sixteen random operators, of either type and rounding."""

    @settings(
        max_examples=1, deadline=None, derandomize=True, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(taken_on(SIMD128, kernel, STRATEGIES[kernel]), min_size=16, max_size=16), seeds)
    def check(operators: list[Operator], seed: int) -> None:
        inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
        calls = [kernel.implement(one, SIMD128, StoredRows()) for one in operators]
        outputs = run_on_board(PLATFORM, list(operators), calls, inputs)
        for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
            np.testing.assert_array_equal(result, implementation.reference(arrays)[0])

    check()
