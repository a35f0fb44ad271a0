"""Integer convolutions: C against reference byte for byte, reference against real arithmetic."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kernel, StoredRows
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.requantize import quantization, scale_of
from codegen_c.kernels.shared.window import pack_blocks
from codegen_c.operators.kinds import QConv2d, Quantization, TensorType, Window
from tests.kernels.harness import HOST, PORTABLE
from tests.kernels.quantized import (
    FEW,
    NEAR_TIE,
    assert_c_equals_reference,
    assert_rounds,
    clamps,
    elements,
    extents,
    real,
    seeds,
    tensor_types,
    windows,
)


def of_stride_1(*kernels: tuple[int, int]) -> st.SearchStrategy[Window]:
    """Windows of these taps, padded by some that may differ, also by more than tiles reach."""
    padding = st.sampled_from((0, 1, 2, 0, 1, 2, 7))
    return st.builds(Window, kernel=st.sampled_from(kernels), padding=st.tuples(*[padding] * 4))


TILED = of_stride_1((3, 3))
LINES = of_stride_1((1, 3), (3, 1), (1, 5), (5, 1), (5, 5), (2, 3), (5, 3), (3, 4))


@st.composite
def convolutions(
    draw: st.DrawFn, *, depthwise: bool = False, tiled: st.SearchStrategy[Window] | None = None
) -> QConv2d:
    """tiled: such windows, and fours of input channels."""
    window = draw(windows() if tiled is None else tiled)
    (height, columns), (out_height, out_columns) = draw(extents(window))
    batch = draw(st.sampled_from((1, 1, 1, 2)))
    if depthwise:
        groups, depth, per_group = draw(st.integers(2, 9)), 1, 1
    elif tiled is not None:
        groups, depth, per_group = 1, 4 * draw(st.sampled_from((1, 2, 4, 5, 9))), draw(st.integers(1, 9))
    else:
        groups = draw(st.sampled_from((1, 1, 2, 3)))
        depth, per_group = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    num_outputs = groups * per_group
    random = np.random.default_rng(draw(seeds))
    weight = random.integers(-128, 128, (num_outputs, *window.kernel, depth)).astype(np.int8)
    scales = np.exp2(random.uniform(-9, -4, num_outputs)).astype(np.float32)
    source = draw(tensor_types((batch, height, columns, groups * depth)))
    # Typical sums, times this, span the output once, a tenth of it, or ten times: then both ends saturate.
    spread = scale_of(source) * float(scales.max()) * 90 * 73 * weight[0].size ** 0.5
    output_scale = float(np.float32(spread / 64 * draw(st.sampled_from((0.1, 1.0, 10.0)))))
    output = draw(tensor_types((batch, out_height, out_columns, num_outputs), scale=output_scale))
    low, high = draw(clamps(output))
    return QConv2d(
        inputs=(source,),
        outputs=(output,),
        weight=weight,
        weight_scale=scales if draw(st.booleans()) else np.full_like(scales, scales[0]),
        bias=random.integers(-20000, 20000, num_outputs).astype(np.int32),
        window=window,
        low=low,
        high=high,
        groups=groups,
    )


def convolve(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, operator: QConv2d) -> np.ndarray:
    """Real convolution, one output pixel and one tap at a time."""
    window, result = operator.window, np.zeros(operator.output.shape)
    per_group, depth = weight.shape[0] // operator.groups, weight.shape[3]
    for _, h, w, k in np.ndindex(1, *result.shape[1:]):
        channels = slice(k // per_group * depth, k // per_group * depth + depth)
        total = np.full(x.shape[0], bias[k])
        for r, s in np.ndindex(*window.kernel):
            y = h * window.strides[0] - window.padding[0] + r * window.dilation[0]
            z = w * window.strides[1] - window.padding[1] + s * window.dilation[1]
            if 0 <= y < x.shape[1] and 0 <= z < x.shape[2]:
                total = total + x[:, y, z, channels] @ weight[k, r, s]
        result[:, h, w, k] = total
    return result


def check(operators: list[QConv2d], seed: int, kernel: Kernel, *, near_tie: float = NEAR_TIE) -> None:
    """C equals the reference, which equals real arithmetic."""
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, kernel)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        scale = operator.weight_scale.astype(np.float64)
        weight = operator.weight * scale[:, np.newaxis, np.newaxis, np.newaxis]
        bias = operator.bias * scale_of(operator.inputs[0]) * scale
        value = convolve(real(operator.inputs[0], x), weight, bias, operator)
        assert_rounds(result, value, operator.output, operator.low, operator.high, near_tie=near_tie)


@FEW
@given(st.lists(convolutions(), min_size=1, max_size=5), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    check(operators, seed, qconv2d.QCONV2D)


@FEW
@given(st.lists(convolutions().filter(lambda one: qconv2d.has_pairs(one, PORTABLE)), min_size=1, max_size=4), seeds)
def test_pairs_of_pixels(operators: list[QConv2d], seed: int) -> None:
    """Odd rows, and windows that leave the image at either end, beside the pairs."""
    check(operators, seed, qconv2d.QCONV2D_PAIRS)


@FEW
@given(st.lists(convolutions(depthwise=True), min_size=1, max_size=5), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    check(operators, seed, qdepthwise.QDEPTHWISE)


@FEW
@given(convolutions(depthwise=True))
def test_depthwise_is_chosen_where_it_applies(operator: QConv2d) -> None:
    assert getattr(select(operator, PORTABLE), "kernel", None) == "qdepthwise_i8"


@FEW
@given(convolutions().filter(lambda operator: not any(operator.window.padding)))
def test_zero_point_is_folded_into_the_bias_without_padding(operator: QConv2d) -> None:
    constants = dict(qconv2d.QCONV2D.implement(operator, HOST, StoredRows()).constants)
    taken = quantization(operator.inputs[0]).zero_point * operator.weight.astype(np.int64).sum(axis=(1, 2, 3))
    np.testing.assert_array_equal(constants["bias"], operator.bias - taken)


def test_weights_are_packed_in_the_order_they_are_read() -> None:
    weight = np.arange(6 * 2).reshape(6, 1, 1, 2).astype(np.int8)
    packed = pack_blocks(weight, qconv2d.CHANNEL_BLOCK)
    assert packed.tolist() == [0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 9, 11]


def test_all_ends_saturate() -> None:
    """Largest and smallest activations and weights, one tap: both ends of the output are reached."""
    source = TensorType(shape=(1, 1, 2, 1), dtype="int8", quantization=Quantization(scale=1.0, zero_point=0))
    output = TensorType(shape=(1, 1, 2, 1), dtype="int8", quantization=Quantization(scale=0.001, zero_point=5))
    operator = QConv2d(
        inputs=(source,),
        outputs=(output,),
        weight=np.array([[[[-128]]]], np.int8),
        weight_scale=np.array([1.0], np.float32),
        bias=np.zeros(1, np.int32),
        window=Window(kernel=(1, 1)),
        low=-128,
        high=127,
    )
    x = np.array([-128, 127], np.int8).reshape(source.shape)
    (result,) = assert_c_equals_reference([operator], [[x]], qconv2d.QCONV2D)
    assert result.ravel().tolist() == [127, -128]
