"""Integer tensors times and plus constants: C against reference, reference against real numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.elementwise import qaffine
from codegen_c.operators.kinds import QAffine, Quantization, TensorType
from tests.kernels.harness import HOST
from tests.kernels.quantized import (
    FEW,
    assert_c_equals_reference,
    clamps,
    elements,
    real,
    seeds,
    tensor_types,
)

SHAPES = (((1, 3, 4, 5), (4, 5)), ((1, 6, 7), (1, 6, 7)), ((2, 3, 4), (2, 1, 4)), ((5,), ()), ((2, 3), (1, 1)))


@st.composite
def affines(draw: st.DrawFn) -> QAffine:
    """Factors, addends, or both; addends of about the output's range, some far beyond it."""
    shape, constant = draw(st.sampled_from(SHAPES))
    source, output = draw(tensor_types(shape)), draw(tensor_types(shape))
    low, high = draw(clamps(output))
    random = np.random.default_rng(draw(seeds))
    assert source.quantization is not None and output.quantization is not None
    kind = draw(st.sampled_from(("sum", "difference", "product", "both")))
    one = np.ones(())
    factors = {"sum": one, "difference": -one}.get(kind, random.standard_normal(constant))
    addends = random.standard_normal(constant) * output.quantization.scale * 60
    addends = np.where(random.random(constant) < 0.1, -1e4, addends) if kind != "product" else 0 * one
    return QAffine(inputs=(source,), outputs=(output,), factors=factors, addends=addends, low=low, high=high)


def assert_within_one_step(operator: QAffine, x: np.ndarray, result: np.ndarray) -> None:
    assert operator.output.quantization is not None
    value = real(operator.inputs[0], x) * operator.factors + operator.addends
    steps = np.rint(value / operator.output.quantization.scale) + operator.output.quantization.zero_point
    assert np.abs(result - np.clip(steps, operator.low, operator.high)).max() <= 1


@FEW
@given(st.lists(affines(), min_size=1, max_size=8), seeds)
def test_sums_and_products_of_constants(operators: list[QAffine], seed: int) -> None:
    taken = [operator for operator in operators if qaffine.KERNEL.refuses(operator, HOST) is None]
    inputs = [[elements(operator.inputs[0], seed)] for operator in taken]
    if taken:
        results = assert_c_equals_reference(list(taken), inputs, qaffine.KERNEL)
        for operator, (x,), result in zip(taken, inputs, results, strict=True):
            assert_within_one_step(operator, x, result)


def _of(input_scale: float, shape: tuple[int, ...] = (1, 6), *, tflite: bool = False) -> QAffine:
    source, output = (
        TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=0))
        for scale in (input_scale, 1 / 16)
    )
    addends = np.linspace(-1, 1, 6)
    return QAffine(
        inputs=(source,), outputs=(output,), factors=np.ones(()), addends=addends, low=-128, high=127,
        rounding="tflite" if tflite else "onnx",
    )  # fmt: skip


def test_refusals() -> None:
    assert qaffine.KERNEL.refuses(_of(1 / 16), HOST) is None
    for operator, reason in (
        (_of(1e4), "less than 2^13 steps"),
        (_of(1 / 16, tflite=True), "one rounding"),
        (_of(1 / 16, (0, 6)), "must have elements"),
    ):
        refusal = qaffine.KERNEL.refuses(operator, HOST)
        assert refusal is not None and reason in refusal.reason


def test_constants_that_repeat_are_there_once() -> None:
    operator = _of(1 / 16, (1, 5, 4, 6))
    ((_, addends),) = qaffine.KERNEL.implement(operator, HOST, qaffine.StoredRows()).constants
    assert addends.shape == (6,)
