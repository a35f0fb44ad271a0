"""Kernels that add up rows of their input as these come: not a bit differs from the operator run whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kept, Kernel, StoredRows
from codegen_c.kernels.pooling import pool2d_f32, qpool2d
from codegen_c.operators.kinds import Operator, Pool2d, QPool2d, Window
from tests.kernels import float32
from tests.kernels.harness import HOST, run_accumulating, run_kernel
from tests.kernels.quantized import FEW, clamps, elements, seeds, tensor_types


@st.composite
def integer_pools(draw: st.DrawFn) -> QPool2d:
    height, columns, channels = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
    source = draw(tensor_types((1, height, columns, channels)))
    method, rounding = draw(st.sampled_from((("max", "onnx"), ("average", "onnx"), ("average", "tflite"))))
    shape = (1, 1, 1, channels)
    keeps = method == "max" or rounding == "tflite"
    output = replace(source, shape=shape) if keeps else draw(tensor_types(shape))
    low, high = draw(clamps(output))
    return QPool2d(
        inputs=(source,), outputs=(output,), method=method, window=Window(kernel=(height, columns)), low=low, high=high,
        rounding=rounding,
    )  # fmt: skip


@st.composite
def float_pools(draw: st.DrawFn) -> Pool2d:
    height, columns, channels = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
    finish, residuals = draw(float32.finishes(channels).filter(lambda pair: pair[1] == 0))
    assert residuals == 0
    return Pool2d(
        inputs=(float32.floats(1, height, columns, channels),), outputs=(float32.floats(1, 1, 1, channels),),
        method=draw(st.sampled_from(("max", "average"))), window=Window(kernel=(height, columns)), finish=finish,
    )  # fmt: skip


def assert_accumulates(operator: Operator, kernel: Kernel, x: np.ndarray, at_once: int) -> None:
    """Check, per number of parts the input may come in, the bytes of the kernel run whole, and its reference's sums."""
    assert kernel.refuses(operator, HOST) is None
    whole = kernel.implement(operator, HOST, StoredRows())
    assert whole.accumulating is not None
    (expected,) = run_kernel(operator, whole, [x])
    for parts in whole.accumulating.row_counts:
        found = whole.accumulating.implement(parts, StoredRows(inputs=(Kept(stored=at_once),)))
        assert found.spatial is not None and found.spatial.accumulates and found.spatial.output_rows == parts
        assert [role for role, _ in found.constants] == parameter_names(found, "constant")
        result, *sums = run_accumulating(operator, found, [x], parts=parts, at_once=at_once)
        np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))
        for computed, wanted in zip(sums, found.reference([x])[1:], strict=True):
            np.testing.assert_array_equal(computed, wanted)


def parameter_names(implementation: Implementation, role: str) -> list[str]:
    return [parameter.name for parameter in implementation.function.parameters if parameter.role == role]


@FEW
@given(integer_pools().filter(lambda o: qpool2d.QPOOL2D.refuses(o, HOST) is None), seeds, st.integers(1, 3))
def test_integer_pools(operator: QPool2d, seed: int, at_once: int) -> None:
    assert_accumulates(operator, qpool2d.QPOOL2D, elements(operator.inputs[0], seed), at_once)


@FEW
@given(float_pools(), seeds, st.integers(1, 3))
def test_float_pools(operator: Pool2d, seed: int, at_once: int) -> None:
    assert_accumulates(operator, pool2d_f32.KERNEL, float32.elements(operator.inputs[0], seed), at_once)


@pytest.mark.parametrize("window", [Window(kernel=(3, 4)), Window(kernel=(5, 4), padding=(1, 0, 0, 0))], ids=str)
def test_windows_that_are_not_the_image_do_not(window: Window) -> None:
    size = 4 + window.padding[0] - window.kernel[0] + 1
    operator = Pool2d(
        inputs=(float32.floats(1, 4, 4, 3),), outputs=(float32.floats(1, size, 1, 3),), method="average", window=window
    )  # fmt: skip
    assert pool2d_f32.KERNEL.implement(operator, HOST, StoredRows()).accumulating is None
