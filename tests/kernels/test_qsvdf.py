"""Integer SVDF of TensorFlow Lite: features and sums over time in C against their references, byte for byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.recurrent import qsvdf
from codegen_c.operators.kinds import Operator, QSvdfFeatures, QSvdfSum, TensorType
from codegen_c.targets.dsp.kernels import recurrent
from codegen_c.targets.helium.kernels import recurrent as helium
from tests.kernels.dsp import CORTEX_M4, for_cortex_m4
from tests.kernels.harness import PORTABLE, compile_kernels, run_kernel
from tests.kernels.helium import M55
from tests.kernels.quantized import FEW, seeds

STATES = ("int8", "int16")
states = st.sampled_from(STATES)
factors = st.tuples(st.integers(1 << 23, (1 << 24) - 1).map(lambda m: m << 7), st.integers(32, 45))
"""Mantissas and shifts of float32 factors below 1 / 2."""


def features(
    state: str, shape: tuple[int, int, int], factor: tuple[int, int], zero_points: tuple[int, int], seed: int
) -> QSvdfFeatures:
    batch, channels, filters = shape
    return QSvdfFeatures(
        inputs=(TensorType(shape=(batch, channels), dtype="int8"),),
        outputs=(TensorType(shape=(batch, 1, 1, filters), dtype=state),),
        weight=np.random.default_rng(seed).integers(-128, 128, (filters, channels)).astype(np.int8),
        factor=factor, zero_point=zero_points[0], state_zero_point=zero_points[1] if state == "int8" else 0,
    )  # fmt: skip


def summed(state: str, shape: tuple[int, int, int, int], factor: tuple[int, int], reach: int, seed: int) -> QSvdfSum:
    """reach: bits of the biases, which may make sums wrap."""
    batch, units, rank, memory = shape
    random, limits = np.random.default_rng(seed), np.iinfo(state)
    return QSvdfSum(
        inputs=(TensorType(shape=(batch, memory, 1, units * rank), dtype=state),),
        outputs=(TensorType(shape=(batch, units), dtype="int8"),),
        weight=random.integers(limits.min, limits.max + 1, (units * rank, memory)).astype(state),
        bias=random.integers(-1 << reach, 1 << reach, units).astype(np.int32), factor=factor, zero_point=-7,
    )  # fmt: skip


def assert_same(operator: Operator, kernel: Kernel, target: Target, seed: int) -> Implementation:
    """The bytes of the C, for elements over the whole type and at its ends, are those of the reference."""
    assert kernel.refuses(operator, target) is None
    made = kernel.implement(operator, target, StoredRows())
    (entry,), (source,) = compile_kernels([made]), operator.inputs
    random, limits = np.random.default_rng(seed), np.iinfo(source.dtype)
    for low, high in ((limits.min, limits.max), (limits.min, limits.min), (limits.max, limits.max)):
        x = random.integers(low, high + 1, source.shape).astype(source.dtype)
        (found,) = run_kernel(operator, made, [x], entry=entry)
        np.testing.assert_array_equal(found, made.reference([x])[0])
    return made


@FEW
@given(
    states, st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 19)), factors,
    st.tuples(st.integers(-128, 127), st.integers(-128, 127)), seeds,
)  # fmt: skip
@example("int8", (1, 96, 64), (1479101824, 41), (-128, 78), 1)
@example("int8", (2, 16, 8), (1440023297, 38), (0, -100), 1)
def test_features(
    state: str, shape: tuple[int, int, int], factor: tuple[int, int], zero_points: tuple[int, int], seed: int
) -> None:
    """Also for a mantissa that no float32 factor has, which the dense kernel cannot take."""
    operator = features(state, shape, factor, zero_points, seed)
    for target in (PORTABLE, CORTEX_M4):
        assert_same(operator, qsvdf.FEATURES, target, seed)


@pytest.mark.parametrize("zero_point", [0, 78])
def test_features_of_int8_are_the_results_of_a_dense_layer(zero_point: int) -> None:
    """They need no sums in scratch, unless float32 does not hold the factor."""
    operator = features("int8", (1, 96, 64), (1479101824, 41), (-128, zero_point), 1)
    exact, other = (
        qsvdf.FEATURES.implement(one, PORTABLE, StoredRows())
        for one in (operator, replace(operator, factor=(1479101825, 41)))
    )
    assert (exact.scratch_bytes, other.scratch_bytes) == (0, 4 * 64)
    assert ("tvm_ext_svdf_shift" in exact.function.body) == (zero_point != 0)


def test_the_zero_point_of_a_wide_state() -> None:
    operator = replace(features("int16", (1, 4, 4), (1 << 30, 36), (0, 0), 1), state_zero_point=3)
    refusal = qsvdf.FEATURES.refuses(operator, PORTABLE)
    assert refusal is not None and refusal.reason == "the zero point of a state of int16 must be 0"


@settings(FEW, max_examples=8)
@given(
    states, st.tuples(st.integers(1, 2), st.integers(1, 3), st.sampled_from((1, 2, 4)), st.integers(1, 11)), factors,
    st.sampled_from((9, 31)), seeds,
)  # fmt: skip
@example("int16", (1, 2, 2, 4), ((1 << 31) - 1, 32), 31, 1)
@example("int8", (1, 1, 1, 8), (1754508160, 35), 31, 1)
def test_sums_of_four_features_at_a_time(
    state: str, shape: tuple[int, int, int, int], factor: tuple[int, int], reach: int, seed: int
) -> None:
    batch, fours, rank, memory = shape
    operator = summed(state, (batch, fours * 4 // rank, rank, memory), factor, reach, seed)
    assert_same(operator, for_cortex_m4(recurrent.SVDF_SUM), PORTABLE, seed)


@settings(FEW, max_examples=8)
@given(
    states, st.tuples(st.integers(1, 2), st.integers(1, 13), st.integers(1, 5), st.integers(1, 9)), factors,
    st.sampled_from((9, 31)), seeds,
)  # fmt: skip
@example("int16", (1, 6, 1, 4), ((1 << 31) - 1, 32), 31, 1)
@example("int8", (2, 5, 2, 8), (1754508160, 35), 31, 1)
def test_sums_of_four_outputs_at_a_time(
    state: str, shape: tuple[int, int, int, int], factor: tuple[int, int], reach: int, seed: int
) -> None:
    """The plain C of Helium's kernel computes any rank, also if the last vector has fewer than four outputs."""
    made = assert_same(summed(state, shape, factor, reach, seed), helium.SVDF_SUM, M55, seed)
    assert len(dict(made.constants)["bias"]) % 4 == 0, "vectors of biases are read whole"


@FEW
@given(states, st.tuples(st.just(1), st.integers(1, 7), st.integers(1, 5), st.integers(1, 6)), factors, seeds)
def test_portable_sums(state: str, shape: tuple[int, int, int, int], factor: tuple[int, int], seed: int) -> None:
    assert_same(summed(state, shape, factor, 31, seed), qsvdf.SUM, PORTABLE, seed)


@pytest.mark.parametrize(("units", "rank"), [(3, 2), (4, 3), (1, 8)])
def test_features_that_do_not_fill_fours(units: int, rank: int) -> None:
    refusal = recurrent.SVDF_SUM.refuses(summed("int8", (1, units, rank, 3), (1 << 30, 36), 9, 1), CORTEX_M4)
    assert refusal is not None and refusal.reason.startswith("features must be a multiple of four")
