"""Float products with matrices of mostly zeros, such as mel filter banks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.dense import banded_f32, dense_f32
from codegen_c.kernels.dense.banded_f32 import Bands
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import ConstantMatmul, Conv2d, Dense, Matmul, MatmulShape, Window
from codegen_c.operators.scalar import IDENTITY
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.float32 import (
    FEW,
    assert_kernel,
    assert_same_bits,
    elements,
    finishes,
    floats,
    run_once,
    seeds,
)
from tests.kernels.harness import HOST


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    """A band in each row, at most half as long as the row, and sometimes empty rows."""
    channels, depth = draw(st.integers(1, 9)), draw(st.integers(4, 20))
    random = np.random.default_rng(draw(seeds))
    matrix = np.zeros((channels, depth), np.float32)
    for row in matrix:
        length = random.integers(0, depth // 2 + 1)
        begin = random.integers(0, depth - length + 1)
        row[begin : begin + length] = random.normal(size=length)
    matrix[0, depth - 1] = 1.5
    matrix[0, : depth - 1] = 0
    return matrix


@st.composite
def layers(draw: st.DrawFn) -> Dense:
    weight, rows = draw(matrices()), draw(st.sampled_from(((1,), (3,), (2, 2))))
    channels, depth = weight.shape
    finish, residuals = draw(finishes(channels))
    output, bias = floats(*rows, channels), np.random.default_rng(0).normal(size=channels).astype(np.float32)
    return Dense(
        inputs=(floats(*rows, depth), *(output,) * residuals), outputs=(output,), weight=weight, bias=bias,
        finish=finish,
    )  # fmt: skip


@st.composite
def pixels(draw: st.DrawFn) -> Conv2d:
    layer, shape = draw(layers()), draw(st.sampled_from(((1, 3, 1), (2, 1, 2), (1, 3, 2))))
    channels, depth = layer.weight.shape
    output = floats(*shape, channels)
    return Conv2d(
        inputs=(floats(*shape, depth), *(output,) * (len(layer.inputs) - 1)), outputs=(output,),
        weight=layer.weight.reshape(channels, 1, 1, depth), bias=layer.bias, window=Window(kernel=(1, 1)),
        finish=layer.finish,
    )  # fmt: skip


@st.composite
def products(draw: st.DrawFn) -> ConstantMatmul:
    matrix, columns = draw(matrices()), draw(st.integers(1, 5))
    rows, depth = matrix.shape
    finish, residuals = draw(finishes(columns))
    shape = MatmulShape(rows=rows, heads=1, depth=depth, columns=columns, heads_inside=True, steps=(0, 1, columns))
    output, second = floats(rows, columns), floats(depth, columns)
    product = Matmul(
        inputs=(floats(rows, depth), second), outputs=(output,), shape=shape, finish=IDENTITY if residuals else finish
    )
    return ConstantMatmul(inputs=(second,), outputs=(output,), product=product, first=matrix)


@pytest.mark.parametrize(
    ("kernel", "operators"),
    [(banded_f32.DENSE, layers()), (banded_f32.POINTWISE, pixels()), (banded_f32.COLUMNS, products())],
    ids=["dense", "pointwise", "columns"],
)
def test_products(kernel: object, operators: st.SearchStrategy[Dense | Conv2d | ConstantMatmul]) -> None:
    @FEW
    @given(st.lists(operators, min_size=4, max_size=8), seeds)
    def check(made: list[Dense | Conv2d | ConstantMatmul], seed: int) -> None:
        inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in made]
        assert_kernel(made, inputs, kernel)  # type: ignore[arg-type]

    check()


def mel(vectors: int, bins: int = 257, filters: int = 40) -> Dense:
    """Triangles whose width grows with their frequency."""
    edges = (bins - 1) * np.linspace(0, 1, filters + 2) ** 2
    at = np.arange(bins)
    up = (at - edges[:-2, np.newaxis]) / np.maximum(edges[1:-1] - edges[:-2], 1e-9)[:, np.newaxis]
    down = (edges[2:, np.newaxis] - at) / (edges[2:] - edges[1:-1])[:, np.newaxis]
    weight = np.maximum(np.minimum(up, down), 0).astype(np.float32)
    output = floats(vectors, filters)
    return Dense(inputs=(floats(vectors, bins),), outputs=(output,), weight=weight, bias=np.zeros(filters, np.float32))


def test_bits_are_those_of_the_dense_kernel() -> None:
    operator = mel(3)
    x = elements(operator.inputs[0], 1)
    assert_same_bits(run_once(operator, banded_f32.DENSE, [x]), run_once(operator, dense_f32.KERNEL, [x]))


def test_a_filter_bank_is_banded_where_that_is_cheaper() -> None:
    operator = mel(10)
    made = select(operator, CORTEX_M4)
    assert isinstance(made, Implementation) and made.kernel == "banded_dense_f32"
    dense = next(other for other in made.alternatives if other.kernel == "dense_f32")
    assert dense.instructions and made.instructions < 0.4 * dense.instructions
    assert made.constant_bytes < 0.1 * operator.weight.nbytes


def test_bands_begin_and_end_at_an_entry() -> None:
    matrix = np.array([[0, 2, 0, 3, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 4]], np.float32)
    bands = Bands.of(matrix)
    assert bands.ranges.reshape(-1, 2).tolist() == [[1, 3], [0, 0], [0, 1], [4, 1]]
    assert bands.weights.tolist() == [2, 0, 3, 1, 4]


def test_full_and_empty_matrices_are_refused() -> None:
    for weight in (np.ones((40, 257), np.float32), np.zeros((40, 257), np.float32)):
        refusal = banded_f32.DENSE.refuses(replace(mel(2), weight=weight), HOST)
        assert refusal and "half of the matrix" in refusal.reason
