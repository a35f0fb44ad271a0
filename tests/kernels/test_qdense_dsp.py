"""Dense layers by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.shared import common_shift
from codegen_c.operators.kinds import QDense, Quantization, TensorType
from codegen_c.targets.dsp.kernels import dense as dense_dsp
from tests.kernels.dsp import CORTEX_M4, SOME, for_cortex_m4, take_only_shift, taken_by
from tests.kernels.on_target import for_target
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qdense import dense_layers


@SOME
@given(st.lists(taken_by(dense_dsp.QDENSE, dense_layers()), min_size=1, max_size=6), seeds)
def test_dense(operators: list[QDense], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(dense_dsp.QDENSE))


def dense(
    channels: int, *, depth: int = 64, dtype: str = "int8", result: str = "int8", most: int = 127, rows: int = 1
) -> QDense:
    """most: largest weight; below 128 pairs of channels are joined."""
    random, limits = np.random.default_rng(5), np.iinfo(result)

    def vectors(length: int, dtype: str) -> TensorType:
        return TensorType(shape=(rows, length), dtype=dtype, quantization=Quantization(scale=0.3, zero_point=7))

    weight = random.integers(-most, most + 1, (channels, depth))
    return QDense(
        inputs=(vectors(depth, dtype),), outputs=(vectors(channels, result),),
        weight=np.clip(weight, -128, 127).astype(np.int8), weight_scale=np.full(channels, 0.001, np.float32),
        bias=np.arange(channels, dtype=np.int32) * 100, low=int(limits.min), high=int(limits.max),
    )  # fmt: skip


VECTORS = [
    dense(channels, depth=4 * units - 1, dtype=dtype, result=result, most=100, rows=rows)
    for channels, units, dtype, result, rows in (
        (8, 1, "int8", "int8", 1), (9, 2, "uint8", "uint8", 2), (8, 3, "int8", "uint8", 1), (11, 9, "uint8", "int8", 3),
        (8, 16, "int8", "int8", 1), (6, 23, "uint8", "uint8", 1), (3, 35, "int8", "int8", 2),
    )
]  # fmt: skip
"""Layers of whole blocks and others, of an even number of units and an odd one, of whole rounds of the loop and
others."""
VECTORS_TWICE = [
    replace(
        operator,
        rounding="tflite",
        weight_scale=np.linspace(scale, 2 * scale, len(operator.weight)).astype(np.float32),
        outputs=(replace(operator.output, quantization=Quantization(scale=0.3, zero_point=zero_point)),),
    )
    for operator in VECTORS
    if operator.output.dtype == "int8"
    for scale, zero_point in ((0.001, -128), (0.001, 7), (2.0**-9, -3))
]
"""Layers with TensorFlow Lite's roundings; the last factors are powers of two, so that halves occur."""


def made(operator: QDense, target: Target = CORTEX_M4) -> Implementation:
    return dense_dsp.QDENSE.implement(operator, target, StoredRows())


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
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(dense_dsp.QDENSE))


@pytest.mark.parametrize("channels", range(1, 8))
def test_last_channels_have_weights_without_padding(channels: int) -> None:
    """Three last channels have no padding in code for size, or if weights are not joined; else padding is faster."""
    small = replace(CORTEX_M4, optimize="size")
    for most, target in ((100, CORTEX_M4), (128, CORTEX_M4), (100, small)):
        stored = dict(made(dense(channels, depth=1028, most=most), target).constants)
        padded = -(-channels // 4) * 4 if channels % 4 == 3 and most == 100 and target is CORTEX_M4 else channels
        assert (stored["weights"].size, stored["bias"].size) == (1028 * padded, padded)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("most", [100, 128])
def test_last_channels_give_the_reference(dtype: str, most: int) -> None:
    """The layers read bytes, or cells whose last unit is not full."""
    operators = [
        dense(channels, depth=depth, dtype=dtype, most=most, rows=rows)
        for channels, depth, rows in ((1, 64, 2), (2, 65, 1), (3, 68, 2), (5, 71, 1), (6, 36, 3), (7, 63, 2), (9, 2, 1))
    ]
    inputs = [[elements(operator.inputs[0], 4)] for operator in operators]
    for target in (CORTEX_M4, replace(CORTEX_M4, optimize="size")):
        assert_c_equals_reference(list(operators), inputs, for_target(dense_dsp.QDENSE, target))


def is_in_registers(operator: QDense, target: Target = CORTEX_M4) -> bool:
    """True where a function takes the layer from products to bytes."""
    implementation = made(operator, target)
    assert len(implementation.constants) in ((1,) if "single_1x4" in implementation.function.body else (2, 4))
    return "tvm_ext_dsp_single_1x4" in implementation.function.body


def test_sums_of_four_channels_are_finished_in_registers() -> None:
    """Joined weights, all numbers of the type; for speed, and with cells. A last block may have fewer channels."""
    whole = dense(64, most=100)
    assert is_in_registers(whole)
    assert is_in_registers(dense(62, most=100)) and not is_in_registers(dense(64, most=128))
    assert not is_in_registers(replace(whole, low=3)) and is_in_registers(replace(whole, rounding="tflite"))
    assert not is_in_registers(replace(whole, bias=np.full(64, (1 << 23) - 1, np.int32)))
    assert not is_in_registers(dense(8, most=100)), "bytes are multiplied as they are"
    assert not is_in_registers(whole, replace(CORTEX_M4, optimize="size"))
    assert not is_in_registers(whole, replace(CORTEX_M4, least_scratch=True))


@pytest.mark.parametrize("shift", common_shift.SHIFTS)
def test_registers_give_the_reference(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    take_only_shift(shift, monkeypatch)
    assert all(is_in_registers(operator) for operator in VECTORS)
    inputs = [[elements(operator.inputs[0], 7)] for operator in VECTORS]
    assert_c_equals_reference(list(VECTORS), inputs, for_cortex_m4(dense_dsp.QDENSE))


def test_two_roundings_in_registers_give_the_reference() -> None:
    assert all(is_in_registers(operator) for operator in VECTORS_TWICE)
    inputs = [[elements(operator.inputs[0], 7)] for operator in VECTORS_TWICE]
    assert_c_equals_reference(list(VECTORS_TWICE), inputs, for_cortex_m4(dense_dsp.QDENSE))


def test_long_rows_are_read_as_bytes() -> None:
    """Expanded, they take two bytes an element of scratch: more than most other tensors of their networks."""
    short, long = (dense(64, depth=depth) for depth in (1024, 1028))
    assert [made(operator).scratch_bytes for operator in (short, long)] == [2048, 0]
    assert_c_equals_reference([long], [[elements(long.inputs[0], 6)]], for_cortex_m4(dense_dsp.QDENSE))
