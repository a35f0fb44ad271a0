"""GroupNorm and InstanceNorm in integers: C against the reference byte for byte, that within a step of real numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.normalization import qgroup_normalize
from codegen_c.operators.kinds import QGroupNormalize, Quantization, TensorType
from tests.kernels.harness import HOST
from tests.kernels.quantized import FEW, assert_c_equals_reference, clamps, elements, real, seeds, tensor_types

SOME = settings(FEW, max_examples=4)


@st.composite
def normalizations(draw: st.DrawFn) -> QGroupNormalize:
    groups, depth = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    batch, channels, pixels = draw(st.integers(1, 2)), groups * depth, draw(st.sampled_from(((7,), (3, 5), (1, 2))))
    channel_axis = draw(st.sampled_from((1, len(pixels) + 1)))
    shape = (batch, channels, *pixels) if channel_axis == 1 else (batch, *pixels, channels)
    output = draw(tensor_types(shape, scale=draw(st.sampled_from((0.1, 0.02, 1 / 256)))))
    low, high = draw(clamps(output))
    random = np.random.default_rng(draw(seeds))
    return QGroupNormalize(
        inputs=(draw(tensor_types(shape)),), outputs=(output,), low=low, high=high, groups=groups,
        channel_axis=channel_axis, weight=random.normal(1, 0.5, channels).astype(np.float32),
        epsilon=draw(st.sampled_from((1e-5, 1e-12, 0.0, 1.0))),
        bias=random.normal(0, 0.5, channels).astype(np.float32),
    )  # fmt: skip


def assert_within_a_step(operator: QGroupNormalize, x: np.ndarray, result: np.ndarray) -> None:
    value = np.moveaxis(real(operator.inputs[0], x), operator.channel_axis, 1)
    grouped = value.reshape(value.shape[0], operator.groups, -1)
    root = np.sqrt(grouped.var(axis=2, keepdims=True) + operator.epsilon)
    centered = grouped - grouped.mean(axis=2, keepdims=True)
    is_equal = np.ptp(grouped, axis=2, keepdims=True) == 0
    normal = np.divide(centered, root, out=np.zeros_like(grouped), where=~is_equal & (root > 0)).reshape(value.shape)
    weight, bias = (a.reshape(-1, *[1] * (value.ndim - 2)) for a in (operator.weight, operator.bias))
    assert operator.output.quantization is not None
    steps = (normal * weight + bias) / np.float32(operator.output.quantization.scale)
    expected = np.clip(steps + operator.output.quantization.zero_point, operator.low, operator.high)
    assert np.abs(np.moveaxis(result, operator.channel_axis, 1) - expected).max() < 0.51


@SOME
@given(st.lists(normalizations(), min_size=4, max_size=7), seeds)
def test_groups(operators: list[QGroupNormalize], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qgroup_normalize.KERNEL)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        assert_within_a_step(operator, x, result)


def normalization(pixels: int, dtype: str = "int8", **changes: float) -> QGroupNormalize:
    """Return a normalization of two groups of two channels."""
    shape = (1, pixels, 4)
    kind = TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=0.02, zero_point=3))
    fields = {"weight": 1.0, "bias": 0.0, "scale": 0.02, "epsilon": 1e-5} | changes
    output = TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=fields["scale"], zero_point=1))
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    return QGroupNormalize(
        inputs=(kind,), outputs=(output,), weight=np.full(4, fields["weight"], np.float32), groups=2, channel_axis=2,
        bias=np.full(4, fields["bias"], np.float32), epsilon=fields["epsilon"], low=low, high=high,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["constant", "one other", "ends"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_the_largest_groups(kind: str, dtype: str, weight: float) -> None:
    """65,536 elements: all alike, all but one that differs by one step, and the largest sums there are."""
    operator = normalization(32768, dtype, epsilon=0.0, weight=weight, scale=0.02 * weight)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.full((1, 32768, 4), most, dtype)
    if kind == "one other":
        x[:, 7, ::2] = most - 1
    if kind == "ends":
        x[:, ::2] = least
    (result,) = assert_c_equals_reference([operator], [[x]], qgroup_normalize.KERNEL)
    assert_within_a_step(operator, x, result)


def test_an_epsilon_larger_than_the_variance() -> None:
    operator = normalization(20, epsilon=1e9)
    x = np.random.default_rng(0).integers(-128, 128, (1, 20, 4)).astype(np.int8)
    (result,) = assert_c_equals_reference([operator], [[x]], qgroup_normalize.KERNEL)
    assert_within_a_step(operator, x, result)


@pytest.mark.parametrize("change", [{"weight": float("inf")}, {"bias": 1e12}, {"scale": 1e-9}, {"epsilon": 1e30}])
def test_what_does_not_fit_is_refused(change: dict[str, float]) -> None:
    refusal = qgroup_normalize.KERNEL.refuses(normalization(64, **change), HOST)
    assert refusal is not None and "2^20 steps" in refusal.reason
    too_large = qgroup_normalize.KERNEL.refuses(normalization(32769), HOST)
    assert too_large is not None and "2 to 65536" in too_large.reason
