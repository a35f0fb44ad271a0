"""LayerNorm and RMSNorm in integers: C against the reference byte for byte, that within a step of real numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.normalization import qnormalize
from codegen_c.operators.kinds import QNormalize, Quantization, TensorType
from codegen_c.targets.helium.kernels import softmax as softmax_helium
from tests.kernels.harness import HOST
from tests.kernels.helium import assert_same_bytes
from tests.kernels.quantized import FEW, assert_c_equals_reference, clamps, elements, real, seeds, tensor_types

SOME = settings(FEW, max_examples=3)


@st.composite
def normalizations(draw: st.DrawFn) -> QNormalize:
    shape = (*draw(st.sampled_from(((1,), (1, 3), (1, 2, 3)))), draw(st.integers(2, 70)))
    output = draw(tensor_types(shape, scale=draw(st.sampled_from((0.1, 0.02, 1 / 256)))))
    low, high = draw(clamps(output))
    random = np.random.default_rng(draw(seeds))
    return QNormalize(
        inputs=(draw(tensor_types(shape)),), outputs=(output,), low=low, high=high,
        weight=random.normal(1, 0.5, shape[-1]).astype(np.float32), is_centered=draw(st.booleans()),
        epsilon=draw(st.sampled_from((1e-5, 1e-12, 0.0, 1.0))),
        bias=random.normal(0, 0.5, shape[-1]).astype(np.float32),
    )  # fmt: skip


def assert_within_a_step(operator: QNormalize, x: np.ndarray, result: np.ndarray) -> None:
    value = real(operator.inputs[0], x)
    if operator.is_centered:
        value = value - value.mean(axis=-1, keepdims=True)
    root = np.sqrt((value**2).mean(axis=-1, keepdims=True) + operator.epsilon)
    normal = np.divide(value, root, out=np.zeros_like(value), where=root > 0)
    assert operator.output.quantization is not None
    steps = (normal * operator.weight + operator.bias) / np.float32(operator.output.quantization.scale)
    expected = np.clip(steps + operator.output.quantization.zero_point, operator.low, operator.high)
    assert np.abs(result - expected).max() < 0.51


@SOME
@given(st.lists(normalizations(), min_size=3, max_size=6), seeds)
def test_normalizations(operators: list[QNormalize], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qnormalize.KERNEL)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        assert_within_a_step(operator, x, result)


@SOME
@given(st.lists(normalizations(), min_size=3, max_size=6), seeds)
def test_helium(operators: list[QNormalize], seed: int) -> None:
    assert_same_bytes(softmax_helium.QNORMALIZE, list(operators), seed)


def normalization(length: int, **changes: float) -> QNormalize:
    kind = TensorType(shape=(2, length), dtype="int8", quantization=Quantization(scale=0.02, zero_point=-3))
    fields = {"weight": 1.0, "bias": 0.0, "scale": 0.02, "epsilon": 1e-5} | changes
    output = TensorType(shape=(2, length), dtype="int8", quantization=Quantization(scale=fields["scale"], zero_point=1))
    return QNormalize(
        inputs=(kind,), outputs=(output,), weight=np.full(length, fields["weight"], np.float32), is_centered=True,
        bias=np.full(length, fields["bias"], np.float32), epsilon=fields["epsilon"], low=-128, high=127,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["constant", "one other", "ends"])
def test_the_longest_vectors(kind: str) -> None:
    """4096 elements: all alike, all but one, and the largest sums there are."""
    operator = normalization(4096, epsilon=0.0)
    x = np.full((2, 4096), -128, np.int8)
    if kind == "one other":
        x[:, 7] = 127
    if kind == "ends":
        x[:, ::2] = 127
    (result,) = assert_c_equals_reference([operator], [[x]], qnormalize.KERNEL)
    assert_within_a_step(operator, x, result)


@pytest.mark.parametrize("change", [{"weight": float("inf")}, {"bias": 1e12}, {"scale": 1e-9}])
def test_what_does_not_fit_is_refused(change: dict[str, float]) -> None:
    refusal = qnormalize.KERNEL.refuses(normalization(64, **change), HOST)
    assert refusal is not None and "2^28 steps" in refusal.reason
    too_long = qnormalize.KERNEL.refuses(normalization(4097), HOST)
    assert too_long is not None and "2 to 4096" in too_long.reason


def test_an_epsilon_far_above_the_variance_is_refused() -> None:
    """Elements would be shifted by a negative count, which C leaves open."""
    refusal = qnormalize.KERNEL.refuses(normalization(4096, epsilon=1e4), HOST)
    assert refusal is not None and "epsilon not far above" in refusal.reason
    operator = normalization(4096, epsilon=1e3)
    x = np.tile(np.array([-128, 127], np.int8), (2, 2048))
    (result,) = assert_c_equals_reference([operator], [[x]], qnormalize.KERNEL)
    assert_within_a_step(operator, x, result)
