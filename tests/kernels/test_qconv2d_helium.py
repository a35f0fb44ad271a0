"""Helium convolutions on the host: the portable kernels' bytes, whatever the shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.shared.requantize import scale_of
from codegen_c.operators.kinds import QConv2d, Quantization, TensorType, Window
from codegen_c.targets.helium.kernels import convolution as convolution_helium
from codegen_c.targets.helium.kernels import groups as groups_helium
from tests.kernels.helium import M55, M55_SIZE, assert_same_bytes, takes
from tests.kernels.quantized import FEW, clamps, extents, seeds, tensor_types, windows
from tests.support.sweeps import some_of

WINDOWS = (
    Window(kernel=(3, 3), padding=(1, 1, 1, 1)),
    Window(kernel=(3, 3), strides=(2, 2), padding=(0, 0, 1, 1)),
    Window(kernel=(1, 1), strides=(2, 2)),
    Window(kernel=(10, 4), strides=(2, 2), padding=(4, 1, 5, 1)),
)


@st.composite
def convolutions(draw: st.DrawFn, *, pointwise: bool = False) -> QConv2d:
    """Any window, or those of known networks; depths around the 16 lanes of a vector."""
    window = Window(kernel=(1, 1)) if pointwise else draw(st.sampled_from(WINDOWS) | windows())
    (height, columns), (out_height, out_columns) = draw(extents(window))
    depth = draw(st.sampled_from((16, 16, 32, 64, 1, 3, 8)) | st.integers(1, 40))
    channels = draw(st.sampled_from((4, 16)) | st.integers(1, 9))
    batch = draw(st.sampled_from((1, 1, 1, 2)))
    random = np.random.default_rng(draw(seeds))
    weight = random.integers(-128, 128, (channels, *window.kernel, depth)).astype(np.int8)
    # Powers of two have ties.
    scales = np.exp2(random.uniform(-9, -4, channels) if draw(st.booleans()) else random.integers(-9, -4, channels))
    source = draw(tensor_types((batch, height, columns, depth), scale=draw(st.sampled_from((0.5, 0.017)))))
    spread = scale_of(source) * float(scales.max()) * 90 * 73 * weight[0].size ** 0.5
    exponent = float(np.floor(np.log2(spread / 64 * draw(st.sampled_from((0.3, 1.0, 10.0))))))
    output = draw(tensor_types((batch, out_height, out_columns, channels), scale=2.0**exponent))
    low, high = draw(clamps(output))
    return QConv2d(
        inputs=(source,),
        outputs=(output,),
        weight=weight,
        weight_scale=(scales if draw(st.booleans()) else np.full_like(scales, scales[0])).astype(np.float32),
        bias=random.integers(-20000, 20000, channels).astype(np.int32),
        window=window,
        low=low,
        high=high,
    )


@st.composite
def grouped(draw: st.DrawFn) -> QConv2d:
    """Groups of few channels or of more than a vector; the layer is a convolution's with weights of one group only."""
    whole = draw(convolutions())
    groups = draw(st.sampled_from((2, 3, 4, 6, 8)))
    depth, channels = draw(st.sampled_from((1, 2, 3, 4, 8, 17))), draw(st.sampled_from((1, 2, 3, 4, 6)))
    random = np.random.default_rng(draw(seeds))
    (source,), output = whole.inputs, whole.output
    scales = np.resize(whole.weight_scale, groups * channels)
    return replace(
        whole,
        inputs=(replace(source, shape=(*source.shape[:3], groups * depth)),),
        outputs=(replace(output, shape=(*output.shape[:3], groups * channels)),),
        weight=random.integers(-128, 128, (groups * channels, *whole.window.kernel, depth)).astype(np.int8),
        weight_scale=scales, bias=np.resize(whole.bias, groups * channels), groups=groups,
    )  # fmt: skip


GROUPED = st.lists(grouped().filter(takes(groups_helium.KERNEL)), min_size=1, max_size=5)
CONVOLUTIONS = st.lists(convolutions().filter(takes(convolution_helium.QCONV2D)), min_size=1, max_size=5)
POINTWISE = st.lists(convolutions(pointwise=True).filter(takes(convolution_helium.QPOINTWISE)), min_size=1, max_size=5)


@pytest.mark.parametrize("target", some_of([M55], sweep=[M55_SIZE]), ids=["speed", "size"])
@FEW
@given(operators=CONVOLUTIONS, seed=seeds)
def test_conv2d(target, operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(convolution_helium.QCONV2D, operators, seed, target)


@pytest.mark.parametrize("target", some_of([M55_SIZE], sweep=[M55]), ids=["size", "speed"])
@FEW
@given(operators=POINTWISE, seed=seeds)
def test_pointwise(target, operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(convolution_helium.QPOINTWISE, operators, seed, target)


@FEW
@given(operators=GROUPED, seed=seeds)
def test_groups(operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(groups_helium.KERNEL, operators, seed)


@pytest.mark.parametrize("groups", [1, 2])
def test_windows_in_padding_alone(groups: int) -> None:
    """A window to the left or the right of the image has no taps in it, rather than a negative number of them."""
    kind = TensorType(shape=(1, 4, 3, 6), dtype="int8", quantization=Quantization(scale=0.5, zero_point=-7))
    operator = QConv2d(
        inputs=(kind,),
        outputs=(replace(kind, shape=(1, 12, 11, 4)),),
        weight=np.random.default_rng(3).integers(-128, 128, (4, 3, 3, 6 // groups)).astype(np.int8),
        weight_scale=np.full(4, 2.0**-9, np.float32), bias=np.arange(4, dtype=np.int32),
        window=Window(kernel=(3, 3), padding=(5, 5, 5, 5)), groups=groups, low=-128, high=127,
    )  # fmt: skip
    assert_same_bytes(groups_helium.KERNEL if groups > 1 else convolution_helium.QCONV2D, [operator], 5)
