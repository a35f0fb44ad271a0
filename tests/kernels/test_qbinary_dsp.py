"""Sums and differences by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import QBinary, Quantization, Rounding, TensorType
from codegen_c.targets.dsp.kernels import elementwise as elementwise_dsp
from tests.kernels.dsp import CORTEX_M4, SOME, for_cortex_m4, taken_by
from tests.kernels.harness import run_in_place
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qbinary import binaries


@SOME
@given(st.lists(taken_by(elementwise_dsp.QBINARY, binaries()), min_size=1, max_size=8), seeds)
def test_binaries(operators: list[QBinary], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(elementwise_dsp.QBINARY))


def tensor(shape: tuple[int, ...], scale: float, zero_point: int = 0) -> TensorType:
    return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=zero_point))


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_every_pair_of_elements(rounding: Rounding) -> None:
    a, b = (x.reshape(-1).astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    operator = QBinary(
        inputs=(tensor(a.shape, 0.0371, 3), tensor(b.shape, 0.0612, -9)), outputs=(tensor(a.shape, 0.0833, 1),),
        function="add", low=-128, high=127, rounding=rounding,
    )  # fmt: skip
    assert getattr(select(operator, CORTEX_M4), "kernel", None) == "qbinary_dsp"
    assert_c_equals_reference([operator], [[a, b]], for_cortex_m4(elementwise_dsp.QBINARY))
    implementation = elementwise_dsp.QBINARY.implement(operator, CORTEX_M4, StoredRows())
    for index in implementation.in_place:
        result = run_in_place(implementation, [a, b], index)
        np.testing.assert_array_equal(result, implementation.reference([a, b])[0])


def test_ties_are_left_to_the_portable_kernel() -> None:
    same = tensor((1, 8), 0.5)
    operator = QBinary(inputs=(same, same), outputs=(tensor((1, 8), 1.0),), function="add", low=-128, high=127)
    refusal = elementwise_dsp.QBINARY.refuses(operator, CORTEX_M4)
    assert refusal is not None and "for every pair of elements" in refusal.reason
