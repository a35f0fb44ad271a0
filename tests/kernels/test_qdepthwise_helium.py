"""Helium depthwise convolutions on the host: the portable kernels' bytes, whatever the shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.shared.requantize import scale_of
from codegen_c.operators.kinds import QConv2d, Quantization, TensorType, Window
from codegen_c.targets.helium.kernels import depthwise as depthwise_helium
from tests.kernels.helium import assert_same_bytes, implementation, takes
from tests.kernels.quantized import FEW, clamps, extents, seeds, tensor_types, windows

WINDOWS = (Window(kernel=(3, 3), padding=(1, 1, 1, 1)), Window(kernel=(3, 3), strides=(2, 2), padding=(0, 0, 1, 1)))


@st.composite
def depthwise(draw: st.DrawFn) -> QConv2d:
    window = draw(st.sampled_from(WINDOWS) | windows())
    (height, columns), size = draw(extents(window))
    channels = draw(st.sampled_from((16, 32, 8, 8, 4)) | st.integers(2, 40))
    batch = draw(st.sampled_from((1, 1, 1, 2)))
    random = np.random.default_rng(draw(seeds))
    largest = draw(st.sampled_from((20, 60, 128)))
    weight = random.integers(-largest, largest, (channels, *window.kernel, 1)).astype(np.int8)
    scales = np.exp2(random.uniform(-9, -4, channels) if draw(st.booleans()) else random.integers(-9, -4, channels))
    source = draw(tensor_types((batch, height, columns, channels), scale=draw(st.sampled_from((0.5, 0.017)))))
    spread = scale_of(source) * float(scales.max()) * 90 * largest * weight[0].size ** 0.5
    exponent = float(np.floor(np.log2(spread / 64 * draw(st.sampled_from((0.3, 1.0, 10.0))))))
    output = draw(tensor_types((batch, *size, channels), scale=2.0**exponent))
    low, high = draw(clamps(output))
    return QConv2d(
        inputs=(source,),
        outputs=(output,),
        weight=weight,
        weight_scale=scales.astype(np.float32),
        bias=random.integers(-20000, 20000, channels).astype(np.int32),
        window=window,
        low=low,
        high=high,
        groups=channels,
    )


def unpadded(channels: int) -> QConv2d:
    """A window of three rows over an image of one column, as in a stream of frames."""
    random = np.random.default_rng(channels)
    scale = Quantization(scale=0.5, zero_point=3)
    return QConv2d(
        inputs=(TensorType(shape=(1, 4, 1, channels), dtype="int8", quantization=scale),),
        outputs=(TensorType(shape=(1, 2, 1, channels), dtype="int8", quantization=scale),),
        weight=random.integers(-90, 90, (channels, 3, 1, 1)).astype(np.int8),
        weight_scale=np.exp2(random.integers(-9, -6, channels)).astype(np.float32),
        bias=random.integers(-2000, 2000, channels).astype(np.int32),
        window=Window(kernel=(3, 1)),
        low=-128,
        high=127,
        groups=channels,
    )


@settings(FEW, max_examples=3)
@given(st.lists(depthwise().filter(takes(depthwise_helium.KERNEL)), min_size=1, max_size=4), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(depthwise_helium.KERNEL, operators, seed)


def test_sums_of_a_group_fit_16_bits() -> None:
    weight = np.random.default_rng(0).integers(-128, 128, (64, 5, 5, 1)).astype(np.int8)
    groups = depthwise_helium.groups_of_taps(weight)
    assert sorted(tap for group in groups for tap in group) == list(range(25))
    taps = np.abs(weight.reshape(64, 25).astype(int))
    assert max(taps[:, group].sum(axis=1).max() for group in groups) * 128 < 1 << 15


@pytest.mark.parametrize("channels", [16, 40, 47])
def test_windows_inside_the_input_are_read_in_place(channels: int) -> None:
    """Channels that are no whole vectors, too: no window is copied, so no scratch is taken."""
    chosen = implementation(depthwise_helium.KERNEL, unpadded(channels), StoredRows())
    assert chosen.scratch_bytes == 0
    assert_same_bytes(depthwise_helium.KERNEL, [unpadded(channels)], 3)


@pytest.mark.parametrize("size", [1, 5, 28])
def test_small_weights_are_one_group(size: int) -> None:
    weight = np.full((16, 3, 3, 1), size, np.int8)
    assert len(depthwise_helium.groups_of_taps(weight)) == 1
