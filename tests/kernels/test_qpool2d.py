"""Integer pooling: C against reference byte for byte, reference against real arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.pooling import qpool2d
from codegen_c.operators.kinds import QPool2d, Quantization, TensorType, Window
from tests.kernels.harness import HOST
from tests.kernels.quantized import (
    FEW,
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


@st.composite
def pools(draw: st.DrawFn) -> QPool2d:
    window = draw(windows(every_tap_pads=False))
    (height, columns), size = draw(extents(window))
    batch, channels = draw(st.sampled_from((1, 1, 1, 2))), draw(st.integers(1, 9))
    source = draw(tensor_types((batch, height, columns, channels)))
    method = draw(st.sampled_from(("max", "average", "average")))
    shape = (batch, *size, channels)
    output = replace(source, shape=shape) if method == "max" else draw(tensor_types(shape))
    low, high = draw(clamps(output))
    operator = QPool2d(
        inputs=(source,),
        outputs=(output,),
        method=method,
        window=window,
        low=low,
        high=high,
        count_include_pad=draw(st.booleans()),
    )
    return operator


def pool(x: np.ndarray, operator: QPool2d) -> np.ndarray:
    """Real pooling, one output pixel at a time."""
    window, result = operator.window, np.zeros(operator.output.shape)
    for h, w in np.ndindex(*result.shape[1:3]):
        rows = np.arange(window.kernel[0]) * window.dilation[0] + h * window.strides[0] - window.padding[0]
        columns = np.arange(window.kernel[1]) * window.dilation[1] + w * window.strides[1] - window.padding[1]
        rows, columns = rows[(rows >= 0) & (rows < x.shape[1])], columns[(columns >= 0) & (columns < x.shape[2])]
        inside = x[:, rows][:, :, columns].reshape(x.shape[0], -1, x.shape[3])
        count = window.kernel[0] * window.kernel[1] if operator.count_include_pad else inside.shape[1]
        result[:, h, w] = inside.max(axis=1) if operator.method == "max" else inside.sum(axis=1) / count
    return result


@FEW
@given(st.lists(pools().filter(lambda o: qpool2d.QPOOL2D.refuses(o, HOST) is None), min_size=1, max_size=5), seeds)
def test_pools(operators: list[QPool2d], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qpool2d.QPOOL2D)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        if operator.method == "max" and qpool2d.counted_taps(replace(operator, count_include_pad=False)).min() == 0:
            continue  # Nothing to take the largest of: the real value is minus infinity.
        value = pool(real(operator.inputs[0], x), operator)
        assert_rounds(result, value, operator.output, operator.low, operator.high)


def test_counts_at_borders_have_factors_of_their_own() -> None:
    """Ones, padded: every average over real elements is one, whatever their number."""
    tensor = TensorType(shape=(1, 3, 3, 2), dtype="int8", quantization=Quantization(scale=0.5, zero_point=-7))
    window = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
    operator = QPool2d(inputs=(tensor,), outputs=(tensor,), method="average", window=window, low=-128, high=127)
    x = np.full(tensor.shape, -5, np.int8)
    (result,) = assert_c_equals_reference([operator], [[x]], qpool2d.QPOOL2D)
    assert (result == -5).all()
    (padded,) = assert_c_equals_reference([replace(operator, count_include_pad=True)], [[x]], qpool2d.QPOOL2D)
    # Four of nine ones in the corners: 4 / 9 of two steps above the zero point.
    assert padded[0, 0, 0, 0] == -6


@pytest.mark.parametrize(
    ("method", "kernel", "strides", "channels", "executed"),
    [
        ("max", (2, 1), (2, 1), 16, 10_987), ("max", (3, 1), (3, 1), 6, 4_899), ("max", (2, 2), (2, 2), 16, 12_554),
        ("max", (5, 1), (3, 1), 16, 18_931), ("max", (3, 3), (2, 2), 16, 26_236), ("max", (4, 3), (4, 3), 16, 14_220),
        ("average", (2, 1), (2, 1), 16, 16_729), ("average", (2, 2), (2, 2), 16, 12_009),
        ("average", (3, 3), (3, 3), 16, 13_271), ("average", (3, 3), (3, 3), 6, 3_663),
    ],
)  # fmt: skip
def test_modelled_instructions_are_near_those_that_a_cortex_m4_executes(
    method: str, kernel: tuple[int, int], strides: tuple[int, int], channels: int, executed: int
) -> None:
    """The counts are those of TensorFlow Lite's pools over 18 x 12 pixels, in QEMU; maxima of 2 taps were 1.9 times."""
    source = TensorType(shape=(1, 18, 12, channels), dtype="int8", quantization=Quantization(scale=0.1, zero_point=3))
    size = [(extent - taps) // stride + 1 for extent, taps, stride in zip((18, 12), kernel, strides, strict=True)]
    operator = QPool2d(
        inputs=(source,), outputs=(replace(source, shape=(1, *size, channels)),), method=method,
        window=Window(kernel=kernel, strides=strides), low=-128, high=127, count_include_pad=False, rounding="tflite",
    )  # fmt: skip
    modelled = qpool2d.implement(operator, HOST, StoredRows()).instructions
    assert 1 / 1.15 < modelled / executed < 1.15
