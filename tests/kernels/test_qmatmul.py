"""Products of two quantized activations: C of every target against the reference byte for byte, and real numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.matmul import heads, qmatmul
from codegen_c.operators.kinds import MatmulShape, QMatmul, Quantization, TensorType
from codegen_c.targets.dsp.kernels import dense as dense_dsp
from codegen_c.targets.helium.kernels import dense as dense_helium
from tests.kernels.dsp import for_cortex_m4, taken_by
from tests.kernels.harness import HOST
from tests.kernels.helium import assert_same_bytes, takes
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

SOME = settings(FEW, max_examples=3)


@st.composite
def matmuls(draw: st.DrawFn) -> QMatmul:
    rows, heads, columns = (draw(st.integers(1, most)) for most in (5, 3, 9))
    depth = draw(st.integers(1, 40))
    inside = draw(st.booleans())
    outer = (rows, heads) if inside else (heads, rows)
    # The second tensor's axes in any order: strides of (heads, columns, depth).
    order = draw(st.permutations((0, 1, 2)))
    extents = (heads, columns, depth)
    second = tuple(extents[axis] for axis in order)
    steps = [int(np.prod(second[order.index(axis) + 1 :], dtype=int)) for axis in range(3)]
    output = draw(tensor_types((1, *outer, columns), scale=draw(st.sampled_from((0.5, 0.02, 1 / 256)))))
    low, high = draw(clamps(output))
    first, other = draw(tensor_types((1, *outer, depth), scale=0.05)), draw(tensor_types((1, 1, *second), scale=0.01))
    return QMatmul(
        inputs=(first, other), outputs=(output,), scale=draw(st.sampled_from((1.0, 0.125, 0.35))), low=low, high=high,
        shape=MatmulShape(
            rows=rows, heads=heads, depth=depth, columns=columns, heads_inside=inside,
            steps=(steps[0], steps[1], steps[2]),
        ),
    )  # fmt: skip


def samples(operators: list[QMatmul], seed: int) -> list[list[np.ndarray]]:
    return [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]


@SOME
@given(st.lists(matmuls(), min_size=3, max_size=5), seeds)
def test_matmuls(operators: list[QMatmul], seed: int) -> None:
    inputs = samples(operators, seed)
    results = assert_c_equals_reference(list(operators), inputs, qmatmul.KERNEL)
    for operator, (x, y), result in zip(operators, inputs, results, strict=True):
        shape = operator.shape
        a = real(operator.inputs[0], x).reshape(*shape.outer, shape.depth)
        b = real(operator.inputs[1], y).reshape(-1)[heads.places(operator.shape)]
        value = np.stack([np.stack([
            (a[r, h] if shape.heads_inside else a[h, r]) @ b[h] for h in range(shape.heads)
        ]) for r in range(shape.rows)])  # fmt: skip
        value = value if shape.heads_inside else value.transpose(1, 0, 2)
        expected = (value * operator.scale).reshape(operator.output.shape)
        assert_rounds(result, expected, operator.output, operator.low, operator.high)


@SOME
@given(st.lists(taken_by(dense_dsp.QMATMUL, matmuls()), min_size=3, max_size=5), seeds)
def test_dsp(operators: list[QMatmul], seed: int) -> None:
    assert_c_equals_reference(list(operators), samples(operators, seed), for_cortex_m4(dense_dsp.QMATMUL))


@SOME
@given(st.lists(matmuls().filter(takes(dense_helium.QMATMUL)), min_size=3, max_size=5), seeds)
def test_helium(operators: list[QMatmul], seed: int) -> None:
    assert_same_bytes(dense_helium.QMATMUL, list(operators), seed)


def matmul(*, depth: int = 8, scale: float = 0.02, step: int = 1) -> QMatmul:
    """Two rows times three columns of a matrix, whose elements lie `step` apart."""

    def kind(*shape: int) -> TensorType:
        return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=scale, zero_point=-1))

    return QMatmul(
        inputs=(kind(1, 2, 1, depth), kind(3, depth * step)), outputs=(kind(1, 2, 1, 3),), scale=1.0, low=-128,
        high=127,
        shape=MatmulShape(rows=2, heads=1, depth=depth, columns=3, heads_inside=True, steps=(0, depth * step, step)),
    )  # fmt: skip


def test_sums_that_do_not_fit_are_refused() -> None:
    refusals = [
        kernel.refuses(matmul(depth=140000), HOST) for kernel in (qmatmul.KERNEL, dense_dsp.QMATMUL)
    ]  # fmt: skip
    assert all(refusal is not None and "2^31" in refusal.reason for refusal in refusals)
    refusal = qmatmul.KERNEL.refuses(replace(matmul(), scale=1e12), HOST)
    assert refusal is not None and "2^30 steps" in refusal.reason
    assert not takes(dense_helium.QMATMUL)(matmul(step=8192)) and takes(dense_helium.QMATMUL)(matmul(step=8191))
    assert not takes(dense_helium.QMATMUL)(replace(matmul(depth=4000), scale=1000.0)), "sums cannot be scaled up"
