"""Products with windowed cosines and sines as Fourier transforms: the recognition, and the kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows
from codegen_c.kernels.fourier import fourier_f32
from codegen_c.kernels.fourier.basis import fourier_basis
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import (
    ConstantMatmul,
    Conv2d,
    Dense,
    Matmul,
    MatmulShape,
    PowerSpectrum,
    TensorType,
    Window,
)
from codegen_c.operators.scalar import IDENTITY, Operand
from tests.kernels.dsp import CORTEX_M4
from tests.kernels.float32 import (
    FEW,
    assert_kernel,
    assert_same_bits,
    elements,
    finishes,
    floats,
    program,
    run_once,
    seeds,
)
from tests.kernels.harness import HOST

Form = Literal["both", "alternating", "conjugate", "real", "two sides"]
FORMS: tuple[Form, ...] = ("both", "alternating", "conjugate", "real", "two sides")
LENGTHS = (12, 16, 20, 24, 30, 48, 50, 60, 64, 80, 90, 128)


def hann(samples: int) -> np.ndarray:
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(samples) / samples)


def basis(length: int, window: np.ndarray, form: Form = "both", begin: int = 0, end: int | None = None) -> np.ndarray:
    """The matrix of a transform as exporters write it, float64[rows, samples]."""
    last = length if form == "two sides" else length // 2 + 1
    bins = np.arange(begin, last if end is None else end)
    angles = 2 * np.pi / length * (bins[:, np.newaxis] * np.arange(len(window)) % length)
    real, imaginary = window * np.cos(angles), -window * np.sin(angles)
    if form == "real":
        return real
    if form == "alternating":
        return np.stack([real, imaginary], axis=1).reshape(-1, len(window))
    return np.concatenate([real, -imaginary if form == "conjugate" else imaginary])


@st.composite
def matrices(draw: st.DrawFn) -> np.ndarray:
    """Sometimes with fewer samples than the transform has, and with a few frequencies only."""
    length, form = draw(st.sampled_from(LENGTHS)), draw(st.sampled_from(FORMS))
    samples = draw(st.sampled_from((length, length - 2)))
    window = draw(st.sampled_from((np.ones, hann)))(samples) * draw(st.sampled_from((1.0, 0.3)))
    some = form in ("both", "alternating") and length > 20
    begin, end = draw(st.sampled_from(((0, None), (1, 9), (3, 10)))) if some else (0, None)
    return basis(length, window, form, begin, end).astype(np.float32)


@st.composite
def convolutions(draw: st.DrawFn, *, images: int | None = None) -> Conv2d:
    weight, stride, frames = draw(matrices()), draw(st.integers(1, 20)), draw(st.integers(1, 5))
    (channels, samples), before = weight.shape, draw(st.sampled_from((0, 0, 3)))
    count, along = images or draw(st.integers(1, 2)), draw(st.sampled_from((0, 1)))
    extent = (frames - 1) * stride + samples - before
    finish, residuals = draw(finishes(channels))
    shapes = ((count, extent, 1, 1), (count, frames, 1, channels))
    source, output = (floats(*(shape if along == 0 else (shape[0], 1, *shape[1::2]))) for shape in shapes)
    kernel = (samples, 1) if along == 0 else (1, samples)
    return Conv2d(
        inputs=(source, *(output,) * residuals), outputs=(output,), weight=weight.reshape(channels, *kernel, 1),
        bias=np.zeros(channels, np.float32), finish=finish,
        window=Window(
            kernel=kernel, strides=(stride, stride), padding=(before, 0, 0, 0) if along == 0 else (0, before, 0, 0)
        ),
    )  # fmt: skip


@st.composite
def layers(draw: st.DrawFn) -> Dense:
    weight, rows = draw(matrices()), draw(st.sampled_from(((1,), (3,), (2, 2))))
    finish, residuals = draw(finishes(len(weight)))
    output = floats(*rows, len(weight))
    return Dense(
        inputs=(floats(*rows, weight.shape[1]), *(output,) * residuals), outputs=(output,), weight=weight,
        bias=np.zeros(len(weight), np.float32), finish=finish,
    )  # fmt: skip


@st.composite
def products(draw: st.DrawFn) -> ConstantMatmul:
    matrix, columns = draw(matrices()), draw(st.integers(1, 5))
    rows, depth = matrix.shape
    finish, residuals = draw(finishes(columns))
    shape = MatmulShape(rows=rows, heads=1, depth=depth, columns=columns, heads_inside=True, steps=(0, 1, columns))
    output, second = floats(rows, columns), floats(depth, columns)
    finish = IDENTITY if residuals else finish
    product = Matmul(inputs=(floats(rows, depth), second), outputs=(output,), shape=shape, finish=finish)
    return ConstantMatmul(inputs=(second,), outputs=(output,), product=product, first=matrix)


def check(operators: list[Conv2d] | list[Dense] | list[ConstantMatmul], kernel: Kernel, seed: int) -> None:
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    assert_kernel(operators, inputs, kernel)


@FEW
@given(st.lists(convolutions(), min_size=4, max_size=8), seeds)
def test_frames_of_a_signal(operators: list[Conv2d], seed: int) -> None:
    check(operators, fourier_f32.CONVOLUTION, seed)


@FEW
@given(st.lists(layers(), min_size=4, max_size=8), seeds)
def test_vectors(operators: list[Dense], seed: int) -> None:
    check(operators, fourier_f32.DENSE, seed)


@FEW
@given(st.lists(products(), min_size=4, max_size=8), seeds)
def test_columns(operators: list[ConstantMatmul], seed: int) -> None:
    check(operators, fourier_f32.COLUMNS, seed)


def vectors(matrix: np.ndarray, count: int = 3) -> Dense:
    weight = matrix.astype(np.float32)
    rows, samples = weight.shape
    return Dense(
        inputs=(floats(count, samples),), outputs=(floats(count, rows),), weight=weight, bias=np.zeros(rows, np.float32)
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [60, 90, 128, 400])
def test_c_has_the_bits_of_the_reference_and_the_transform_of_numpy(length: int, form: Form) -> None:
    window = hann(length) + 0.01
    operator = vectors(basis(length, window, form))
    x = elements(operator.inputs[0], length)
    found = run_once(operator, fourier_f32.DENSE, [x])
    (expected,) = fourier_f32.DENSE.implement(operator, HOST, StoredRows()).reference([x])
    assert_same_bits(found, expected)
    exact = x.astype(np.float64) @ basis(length, window, form).T
    assert np.abs(found - exact).max() < 4e-7 * np.abs(exact).max()


@pytest.mark.parametrize("length", [400, 512])
def test_powers_are_sums_of_both_squares(length: int) -> None:
    of_vectors = vectors(basis(length, hann(length), "alternating"))
    bins, signal = length // 2 + 1, floats(1, length + 40, 1, 1)
    of_frames = Conv2d(
        inputs=(signal,), outputs=(floats(1, 3, 1, 2 * bins),), weight=of_vectors.weight.reshape(-1, length, 1, 1),
        bias=of_vectors.bias, window=Window(kernel=(length, 1), strides=(20, 20)),
    )  # fmt: skip
    for product, shape in ((of_vectors, (3, bins)), (of_frames, (1, 3, bins))):
        operator = PowerSpectrum(
            inputs=product.inputs,
            outputs=(floats(*shape),),
            product=product,
            finish=program(("sqrt", Operand(kind="value"))),
        )
        x = elements(product.inputs[0], length)
        found = run_once(operator, fourier_f32.POWERS_OF_FRAMES, [x])
        kernel = fourier_f32.CONVOLUTION if isinstance(product, Conv2d) else fourier_f32.DENSE
        (parts,) = kernel.implement(product, HOST, StoredRows()).reference([x])
        squares = (parts * parts).reshape(*shape, 2)
        assert_same_bits(found, np.sqrt(squares[..., 0] + squares[..., 1]))


def test_powers_of_other_products_are_refused() -> None:
    for matrix, reason in (
        (basis(64, hann(64)), "must alternate"),
        (basis(64, hann(64), "alternating", 0, 4), "cheap"),
    ):
        product = vectors(matrix)
        operator = PowerSpectrum(inputs=product.inputs, outputs=(floats(3, len(matrix) // 2),), product=product)
        refusal = fourier_f32.POWERS_OF_FRAMES.refuses(operator, CORTEX_M4)
        assert refusal and reason in refusal.reason


def test_a_matrix_is_recognized_by_every_entry() -> None:
    matrix = basis(64, hann(64)).astype(np.float32)
    found = fourier_basis(matrix)
    assert found is not None and (found.length, found.begin, found.end) == (64, 0, 33)
    np.testing.assert_allclose(found.window, hann(64), atol=1e-7)
    for row, sample in ((0, 5), (17, 32), (32, 63), (40, 11), (65, 40)):
        changed = matrix.copy()
        changed[row, sample] += 1e-5
        assert fourier_basis(changed) is None, (row, sample)


def test_angles_in_single_precision_are_no_transform() -> None:
    """They differ from exact ones by far more than a rounding of each entry."""
    angles = np.float32(2 * np.pi / 512) * (np.arange(257)[:, np.newaxis] * np.arange(512)).astype(np.float32)
    assert fourier_basis(np.concatenate([np.cos(angles), -np.sin(angles)]).astype(np.float32)) is None


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((34, 64)), np.ones((34, 64)), np.full((34, 64), np.nan),
        np.random.default_rng(0).normal(size=(34, 64)),
        basis(64, hann(64))[::-1], basis(64, hann(64))[:, ::-1], basis(64, hann(64)) + 0.001,
        basis(64, hann(64)) * np.linspace(1, 2, 66)[:, np.newaxis],
    ],
)  # fmt: skip
def test_other_matrices_are_not(matrix: np.ndarray) -> None:
    assert fourier_basis(matrix.astype(np.float32)) is None


@pytest.mark.parametrize(("length", "samples"), [(14, 14), (44, 44), (25, 25), (64, 63)])
def test_lengths_without_a_transform_are_refused(length: int, samples: int) -> None:
    operator = vectors(basis(length, hann(samples) + 0.1))
    refusal = fourier_f32.DENSE.refuses(operator, HOST)
    assert refusal and "several factors" in refusal.reason


def test_a_bias_is_refused() -> None:
    operator = vectors(basis(64, hann(64)))
    refusal = fourier_f32.DENSE.refuses(replace(operator, bias=operator.bias + 1), HOST)
    assert refusal and "bias" in refusal.reason


def test_a_window_over_an_image_is_refused() -> None:
    weight = basis(64, hann(64)).astype(np.float32).reshape(66, 64, 1, 1)
    image = TensorType(shape=(1, 128, 3, 1), dtype="float32")
    operator = Conv2d(
        inputs=(image,), outputs=(floats(1, 65, 3, 66),), weight=weight, bias=np.zeros(66, np.float32),
        window=Window(kernel=(64, 1)),
    )  # fmt: skip
    refusal = fourier_f32.CONVOLUTION.refuses(operator, HOST)
    assert refusal and "one channel" in refusal.reason


def test_cost_decides() -> None:
    """A transform for all frequencies, a product for a few."""
    names = []
    for matrix in (basis(512, hann(512)), basis(512, hann(512), end=4)):
        made = select(vectors(matrix, 10), CORTEX_M4)
        assert isinstance(made, Implementation)
        names.append(made.kernel)
        assert {"dense_f32", "fourier_vectors_f32"} <= {made.kernel, *(other.kernel for other in made.alternatives)}
    assert names == ["fourier_vectors_f32", "dense_f32"]
