"""Dense layers by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.operators.kinds import QDense, TensorType
from codegen_c.operators.quantization import Quantization
from codegen_c.targets.dsp.kernels import qdense_dsp
from tests.kernels.dsp import CORTEX_M4, SOME, for_cortex_m4, taken_by
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qdense import dense_layers


@SOME
@given(st.lists(taken_by(qdense_dsp.KERNEL, dense_layers()), min_size=1, max_size=6), seeds)
def test_dense(operators: list[QDense], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(qdense_dsp.KERNEL))


def dense(channels: int, *, depth: int = 64, dtype: str = "int8", most: int = 127) -> QDense:
    """most: largest weight; below 128 pairs of channels are joined."""
    random = np.random.default_rng(5)

    def vector(length: int, dtype: str) -> TensorType:
        return TensorType(shape=(1, length), dtype=dtype, quantization=Quantization(scale=0.3, zero_point=7))

    weight = random.integers(-most, most + 1, (channels, depth))
    return QDense(
        inputs=(vector(depth, dtype),), outputs=(vector(channels, "int8"),),
        weight=np.clip(weight, -128, 127).astype(np.int8), weight_scale=np.full(channels, 0.01, np.float32),
        bias=np.arange(channels, dtype=np.int32), low=-128, high=127,
    )  # fmt: skip


def made(operator: QDense, target: Target = CORTEX_M4) -> Implementation:
    return qdense_dsp.KERNEL.implement(operator, target, StoredRows())


def test_bytes_are_multiplied_as_they_are_where_that_is_cheaper() -> None:
    assert made(dense(8)).scratch_bytes == 0 and made(dense(64)).scratch_bytes == 128
    assert made(dense(8, depth=62)).scratch_bytes == 128, "whole units only"
    assert made(dense(64), replace(CORTEX_M4, least_scratch=True)).scratch_bytes == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("most", [100, 128])
def test_bytes_give_what_cells_give(dtype: str, most: int) -> None:
    operators = [dense(channels, depth=depth, dtype=dtype, most=most) for channels, depth in ((7, 64), (4, 4), (2, 36))]
    assert all(made(operator).scratch_bytes == 0 for operator in operators)
    inputs = [[elements(operator.inputs[0], 3)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(qdense_dsp.KERNEL))
