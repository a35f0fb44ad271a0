"""Float convolutions, general, depthwise and 1x1, against the reference, and the reference against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel
from codegen_c.kernels.convolution import conv_f32, depthwise_f32
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Conv2d, Window
from tests.kernels.float32 import FEW, assert_close, assert_kernel, elements, finishes, floats, run_once, seeds
from tests.kernels.harness import HOST
from tests.kernels.quantized import extents, windows

POINT = Window(kernel=(1, 1))


@st.composite
def convolutions(draw: st.DrawFn, kind: str = "any") -> Conv2d:
    window = POINT if kind == "pointwise" else draw(windows())
    (height, columns), (out_height, out_columns) = draw(extents(window))
    batch = draw(st.sampled_from((1, 1, 1, 2)))
    groups = 1 if kind == "pointwise" else draw(st.sampled_from((1, 1, 2, 3)))
    depth, per_group = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    if kind == "depthwise":
        groups, depth, per_group = draw(st.integers(1, 9)), 1, 1
    channels = groups * per_group
    finish, residuals = draw(finishes(channels))
    output = floats(batch, out_height, out_columns, channels)
    random = np.random.default_rng(draw(seeds))
    return Conv2d(
        inputs=(floats(batch, height, columns, groups * depth), *(output,) * residuals),
        outputs=(output,),
        weight=random.normal(size=(channels, *window.kernel, depth)).astype(np.float32),
        bias=random.normal(size=channels).astype(np.float32),
        window=window,
        groups=groups,
        finish=finish,
    )


def check(operators: list[Conv2d], seed: int, kernel: Kernel) -> None:
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    assert_kernel(operators, inputs, kernel)


@FEW
@given(st.lists(convolutions(), min_size=3, max_size=6), seeds)
def test_conv2d(operators: list[Conv2d], seed: int) -> None:
    check(operators, seed, conv_f32.CONV2D_F32)


@FEW
@given(st.lists(convolutions("depthwise"), min_size=3, max_size=6), seeds)
def test_depthwise(operators: list[Conv2d], seed: int) -> None:
    check(operators, seed, depthwise_f32.KERNEL)


@FEW
@given(st.lists(convolutions("pointwise"), min_size=3, max_size=6), seeds)
def test_pointwise(operators: list[Conv2d], seed: int) -> None:
    check(operators, seed, conv_f32.POINTWISE_F32)


@FEW
@given(convolutions(), seeds)
def test_reference_is_a_convolution(operator: Conv2d, seed: int) -> None:
    """One output pixel and one tap at a time, float64."""
    arrays = [elements(t, seed + i) for i, t in enumerate(operator.inputs)]
    window, x = operator.window, arrays[0].astype(np.float64)
    total = np.zeros(operator.output.shape)
    per_group, depth = operator.output.shape[3] // operator.groups, operator.weight.shape[3]
    for _, h, w, k in np.ndindex(1, *total.shape[1:]):
        group = slice(k // per_group * depth, (k // per_group + 1) * depth)
        total[:, h, w, k] = operator.bias[k]
        for r, s in np.ndindex(*window.kernel):
            y = h * window.strides[0] - window.padding[0] + r * window.dilation[0]
            z = w * window.strides[1] - window.padding[1] + s * window.dilation[1]
            if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                total[:, h, w, k] += x[:, y, z, group] @ operator.weight[k, r, s]
    expected = operator.finish.run(total.astype(np.float32), arrays)
    assert_close(conv_f32.reference(operator, arrays)[0], np.broadcast_to(expected, total.shape))


def make(window: Window, source: tuple[int, ...], output: tuple[int, ...], groups: int = 1) -> Conv2d:
    depth = source[3] // groups
    return Conv2d(
        inputs=(floats(*source),),
        outputs=(floats(*output),),
        weight=np.ones((output[3], *window.kernel, depth), np.float32),
        bias=np.zeros(output[3], np.float32),
        window=window,
        groups=groups,
    )


@pytest.mark.parametrize("channels", range(1, 8))
def test_every_tail_of_output_channels(channels: int) -> None:
    """Blocks of four and what is left over: each kernel that takes it, on different weights per channel."""
    random = np.random.default_rng(channels)
    for operator, kernel in (
        (make(Window(kernel=(2, 2)), (1, 3, 3, 2), (1, 2, 2, channels)), conv_f32.CONV2D_F32),
        (make(POINT, (1, 1, 3, 2), (1, 1, 3, channels)), conv_f32.POINTWISE_F32),
        (make(Window(kernel=(2, 2)), (1, 3, 3, channels), (1, 2, 2, channels), channels), depthwise_f32.KERNEL),
    ):
        operator.weight[...] = random.normal(size=operator.weight.shape)
        x = elements(operator.inputs[0], channels)
        assert_close(run_once(operator, kernel, [x]), conv_f32.reference(operator, [x])[0])


def test_what_lies_outside_the_input_is_left_out() -> None:
    """Windows wholly in the padding give the bias, even where the input holds infinities."""
    operator = make(Window(kernel=(1, 1), padding=(1, 1, 1, 1)), (1, 1, 1, 1), (1, 3, 3, 1))
    x = np.full((1, 1, 1, 1), np.inf, np.float32)
    result = run_once(operator, conv_f32.CONV2D_F32, [x])
    assert np.isposinf(result[0, 1, 1, 0]) and np.count_nonzero(result) == 1


def test_the_special_kernels_are_chosen_where_they_apply() -> None:
    def chosen(operator: Conv2d) -> str:
        implementation = select(operator, HOST)
        assert isinstance(implementation, Implementation)
        return implementation.kernel

    assert chosen(make(POINT, (1, 16, 16, 64), (1, 16, 16, 64))) == "pointwise_f32"
    assert chosen(make(Window(kernel=(3, 3)), (1, 4, 4, 8), (1, 2, 2, 8), groups=8)) == "depthwise_f32"
    assert chosen(make(Window(kernel=(3, 3)), (1, 4, 4, 8), (1, 2, 2, 8))) == "conv2d_f32"


@pytest.mark.parametrize(
    ("operator", "kernel", "reason"),
    [
        (
            make(POINT, (1, 4, 4, 4), (1, 4, 4, 4), groups=2),
            conv_f32.POINTWISE_F32,
            "without stride, padding or groups",
        ),
        (make(Window(kernel=(1, 1), strides=(2, 2)), (1, 4, 4, 1), (1, 2, 2, 1)), conv_f32.POINTWISE_F32, "1x1"),
        (make(POINT, (1, 4, 4, 4), (1, 4, 4, 8), groups=4), depthwise_f32.KERNEL, "one output channel"),
    ],
    ids=["grouped", "strided", "channel multiplier"],
)
def test_refusals(operator: Conv2d, kernel: Kernel, reason: str) -> None:
    refusal = kernel.refuses(operator, HOST)
    assert refusal is not None and reason in refusal.reason
