"""Transposed convolutions, float and integer: C against references, references against elements that spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.convolution import qconv2d, transposed
from codegen_c.operators.kinds import Conv2dTranspose, QConv2dTranspose, Window
from tests.kernels import float32, quantized
from tests.kernels.float32 import finishes, floats, seeds
from tests.kernels.quantized import FEW, assert_c_equals_reference, clamps, tensor_types

SMALL = st.integers(1, 4)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Window, tuple[int, int, int, int], tuple[int, int]]:
    """(window, [N, H, W, C] of the input, rows and columns of the output), rows and columns without any tap too."""
    kernel, strides = draw(st.tuples(SMALL, SMALL)), draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    before = [draw(st.integers(0, k - 1)) for k in kernel]
    after = [draw(st.integers(0, k - 1)) for k in kernel]
    sizes = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
    full = [(n - 1) * s + k for n, s, k in zip(sizes, strides, kernel, strict=True)]
    more = [draw(st.integers(0, s - 1)) for s in strides]
    output = tuple(max(1, f - b - a + m) for f, b, a, m in zip(full, before, after, more, strict=True))
    window = Window(kernel=kernel, strides=strides, padding=(before[0], before[1], after[0], after[1]))
    source = (draw(st.sampled_from((1, 1, 1, 2))), *sizes, draw(st.integers(1, 5)))
    return window, source, (output[0], output[1])


@st.composite
def float_operators(draw: st.DrawFn) -> Conv2dTranspose:
    window, source, output = draw(shapes())
    channels, random = draw(st.integers(1, 11)), np.random.default_rng(draw(seeds))
    finish, residuals = draw(finishes(channels))
    kind = floats(source[0], *output, channels)
    return Conv2dTranspose(
        inputs=(floats(*source), *(kind,) * residuals), outputs=(kind,), window=window, finish=finish,
        weight=random.normal(size=(channels, *window.kernel, source[3])).astype(np.float32),
        bias=random.normal(size=channels).astype(np.float32),
    )  # fmt: skip


@st.composite
def integer_operators(draw: st.DrawFn) -> QConv2dTranspose:
    window, source, output = draw(shapes())
    channels, random = draw(st.integers(1, 11)), np.random.default_rng(draw(seeds))
    result = draw(tensor_types((source[0], *output, channels), scale=draw(st.sampled_from((0.5, 4.0)))))
    low, high = draw(clamps(result))
    return QConv2dTranspose(
        inputs=(draw(tensor_types(source, scale=0.25)),), outputs=(result,), window=window, low=low, high=high,
        weight=random.integers(-128, 128, (channels, *window.kernel, source[3])).astype(np.int8),
        weight_scale=np.exp2(random.uniform(-9, -6, channels)).astype(np.float32),
        bias=random.integers(-9000, 9000, channels).astype(np.int32),
    )  # fmt: skip


def spread(x: np.ndarray, operator: Conv2dTranspose | QConv2dTranspose) -> np.ndarray:
    """Element by element into an output with room around it, float64; then the padding is cut off."""
    window, shape = operator.window, operator.output.shape
    full = np.zeros((shape[0], shape[1] + 30, shape[2] + 30, shape[3]))
    for i, j in np.ndindex(*x.shape[1:3]):
        for r, s in np.ndindex(*window.kernel):
            y, z = i * window.strides[0] + r, j * window.strides[1] + s
            full[:, y, z] += x[:, i, j].astype(np.float64) @ operator.weight[:, r, s].T.astype(np.float64)
    top, left = window.padding[:2]
    return full[:, top : top + shape[1], left : left + shape[2]] + operator.bias


@FEW
@given(st.lists(float_operators(), min_size=2, max_size=5), seeds)
def test_floats(operators: list[Conv2dTranspose], seed: int) -> None:
    inputs = [[float32.elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    float32.assert_kernel(operators, inputs, transposed.CONV2D_TRANSPOSE_F32)


@FEW
@given(float_operators(), seeds)
def test_the_float_reference_spreads(operator: Conv2dTranspose, seed: int) -> None:
    arrays = [float32.elements(t, seed + i) for i, t in enumerate(operator.inputs)]
    expected = operator.finish.run(spread(arrays[0], operator).astype(np.float32), arrays)
    float32.assert_close(transposed.reference(operator, arrays)[0], expected)


@FEW
@given(st.lists(integer_operators(), min_size=2, max_size=6), seeds)
def test_integers(operators: list[QConv2dTranspose], seed: int) -> None:
    """Both roundings; the reference is the exact sum, requantized."""
    operators = [replace(o, rounding=("onnx", "tflite")[i % 2]) for i, o in enumerate(operators)]
    inputs = [[quantized.elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, transposed.QCONV2D_TRANSPOSE)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        assert operator.inputs[0].quantization is not None
        total = spread(x.astype(np.int64) - operator.inputs[0].quantization.zero_point, operator)
        np.testing.assert_array_equal(result, qconv2d.requantize(operator).run(np.rint(total).astype(np.int64)))
