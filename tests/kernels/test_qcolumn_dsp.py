"""Depthwise windows of one column by the DSP extension: C with its plain fallback against the reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import QConv2d, Quantization, TensorType, Window
from codegen_c.targets.dsp.kernels import column as column_dsp
from tests.kernels.dsp import CORTEX_M4, SOME, for_cortex_m4
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds


@st.composite
def columns(draw: st.DrawFn) -> QConv2d:
    """Layers over time: [N, time, W, C], windows of some rows and one column, without padding."""
    kernel, stride, dilation = draw(st.integers(2, 6)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    rows, width, channels = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(4, 13))
    batch = draw(st.sampled_from((1, 1, 2)))
    height = (rows - 1) * stride + (kernel - 1) * dilation + 1
    random = np.random.default_rng(draw(seeds))

    def image(height: int, scale: float) -> TensorType:
        dtype = draw(st.sampled_from(("int8", "uint8")))
        quantization = Quantization(scale=scale, zero_point=draw(st.integers(0, 90)))
        return TensorType(shape=(batch, height, width, channels), dtype=dtype, quantization=quantization)

    output = image(rows, 0.9)
    limits = np.iinfo(output.dtype)
    return QConv2d(
        inputs=(image(height, 0.1),), outputs=(output,),
        weight=random.integers(-128, 128, (channels, kernel, 1, 1)).astype(np.int8),
        weight_scale=np.linspace(0.01, 0.02, channels).astype(np.float32),
        bias=random.integers(-2000, 2000, channels).astype(np.int32),
        window=Window(kernel=(kernel, 1), strides=(stride, 1), dilation=(dilation, 1)),
        low=int(limits.min), high=int(limits.max), groups=channels, rounding=draw(st.sampled_from(("onnx", "tflite"))),
    )  # fmt: skip


@SOME
@given(st.lists(columns(), min_size=1, max_size=5), seeds)
def test_columns(operators: list[QConv2d], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(column_dsp.KERNEL))


def over_time(channels: int, *, rows: int = 1) -> QConv2d:
    quantization = Quantization(scale=0.1, zero_point=3)

    def image(height: int) -> TensorType:
        return TensorType(shape=(1, height, 1, channels), dtype="int8", quantization=quantization)

    return QConv2d(
        inputs=(image(rows + 4),), outputs=(image(rows),), weight=np.ones((channels, 5, 1, 1), np.int8),
        weight_scale=np.full(channels, 0.01, np.float32), bias=np.zeros(channels, np.int32),
        window=Window(kernel=(5, 1)), low=-128, high=127, groups=channels,
    )  # fmt: skip


def test_it_is_chosen_on_a_cortex_m4() -> None:
    assert getattr(select(over_time(16), CORTEX_M4), "kernel", None) == "qcolumn_dsp"
    assert getattr(select(over_time(3), CORTEX_M4), "kernel", None) == "qdepthwise_i8"
    assert getattr(select(over_time(16), replace(CORTEX_M4, optimize="size")), "kernel", None) != "qcolumn_dsp"


@pytest.mark.parametrize("change", [{"kernel": (5, 2)}, {"kernel": (1, 1)}, {"padding": (1, 0, 0, 0)}])
def test_other_windows_are_refused(change: dict[str, tuple[int, ...]]) -> None:
    operator = over_time(16)
    assert column_dsp.KERNEL.refuses(replace(operator, window=replace(operator.window, **change)), CORTEX_M4)
