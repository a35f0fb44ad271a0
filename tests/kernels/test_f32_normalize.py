"""Float LayerNorm and RMSNorm."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.normalization import normalize_f32
from codegen_c.operators.kinds import Normalize
from tests.kernels.dsp import for_cortex_m4
from tests.kernels.float32 import FEW, assert_kernel, elements, floats, run_once, seeds

SOME = settings(FEW, max_examples=3)


@st.composite
def normalizations(draw: st.DrawFn) -> Normalize:
    tensor = floats(*draw(st.sampled_from(((1,), (1, 3), (1, 2, 3)))), draw(st.integers(2, 40)))
    random = np.random.default_rng(draw(seeds))
    return Normalize(
        inputs=(tensor,), outputs=(tensor,), epsilon=draw(st.sampled_from((1e-5, 1.0))),
        is_centered=draw(st.booleans()), weight=random.normal(1, 0.5, tensor.shape[-1]).astype(np.float32),
        bias=random.normal(0, 0.5, tensor.shape[-1]).astype(np.float32),
    )  # fmt: skip


@SOME
@given(st.lists(normalizations(), min_size=4, max_size=8), seeds)
def test_normalizations(operators: list[Normalize], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed) * np.float32(3) + np.float32(1)] for operator in operators]
    assert_kernel(operators, inputs, normalize_f32.KERNEL)
    assert_kernel(operators, inputs, for_cortex_m4(normalize_f32.KERNEL))


def normalize(length: int, *, is_centered: bool) -> Normalize:
    weight, bias = np.arange(1, length + 1, dtype=np.float32), np.full(length, 2, np.float32)
    return Normalize(
        inputs=(floats(1, length),), outputs=(floats(1, length),), weight=weight, bias=bias, epsilon=0.0,
        is_centered=is_centered,
    )  # fmt: skip


def test_by_hand() -> None:
    """Elements 1 and -1 behind a mean of 1000 have length 1; 3 and 3 have length 3 where the mean stays."""
    x = np.array([[1001, 999, 1001, 999]], np.float32)
    found = run_once(normalize(4, is_centered=True), normalize_f32.KERNEL, [x])
    np.testing.assert_array_equal(found, [[3, 0, 5, -2]])
    found = run_once(normalize(2, is_centered=False), normalize_f32.KERNEL, [np.array([[3, 3]], np.float32)])
    np.testing.assert_allclose(found, [[3, 4]], rtol=1e-6)
