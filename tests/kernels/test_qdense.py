"""Integer dense layers: C against reference byte for byte, reference against real arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.dense import qdense
from codegen_c.kernels.shared.requantize import scale_of
from codegen_c.operators.kinds import QDense, Rounding
from tests.kernels.quantized import (
    FEW,
    assert_c_equals_reference,
    assert_rounds,
    clamps,
    elements,
    real,
    seeds,
    tensor_types,
)

SHAPES = st.sampled_from(((1,), (), (3,), (1, 2, 3)))
SIZES = st.tuples(st.integers(1, 40), st.integers(1, 11))


@st.composite
def dense_layers(
    draw: st.DrawFn,
    shapes: st.SearchStrategy[tuple[int, ...]] = SHAPES,
    sizes: st.SearchStrategy[tuple[int, int]] = SIZES,
    roundings: Sequence[Rounding] = ("onnx",),
) -> QDense:
    """shapes: in front of the last axis. sizes: depth and channels."""
    leading, (depth, channels) = draw(shapes), draw(sizes)
    random = np.random.default_rng(draw(seeds))
    scales = np.exp2(random.uniform(-9, -4, channels)).astype(np.float32)
    source = draw(tensor_types((*leading, depth)))
    spread = scale_of(source) * float(scales.max()) * 90 * 73 * depth**0.5
    output_scale = float(np.float32(spread / 64 * draw(st.sampled_from((0.1, 1.0, 10.0)))))
    output = draw(tensor_types((*leading, channels), scale=output_scale))
    low, high = draw(clamps(output))
    return QDense(
        inputs=(source,),
        outputs=(output,),
        weight=random.integers(-128, 128, (channels, depth)).astype(np.int8),
        weight_scale=scales if draw(st.booleans()) else np.full_like(scales, scales[0]),
        bias=random.integers(-20000, 20000, channels).astype(np.int32),
        low=low,
        high=high,
        rounding=draw(st.sampled_from(roundings)),
    )


@FEW
@given(st.lists(dense_layers(), min_size=1, max_size=6), seeds)
def test_dense(operators: list[QDense], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qdense.QDENSE)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        scale = operator.weight_scale.astype(np.float64)
        bias = operator.bias * scale_of(operator.inputs[0]) * scale
        value = real(operator.inputs[0], x) @ (operator.weight * scale[:, np.newaxis]).T + bias
        assert_rounds(result, value, operator.output, operator.low, operator.high)
