"""Weights that 16 bits hold: float kernels read them so, and give the bits that they give of float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows
from codegen_c.kernels.convolution import conv_f32, depthwise_f32, transposed
from codegen_c.kernels.dense import dense_f32
from codegen_c.kernels.shared import blocking
from codegen_c.kernels.shared.narrow_weights import FLOAT32, narrowest
from codegen_c.operators.kinds import Conv2d, Conv2dTranspose, Dense, Operator, Window
from tests.kernels.float32 import assert_same_bits, elements, floats
from tests.kernels.harness import HOST, compile_kernels, run_every_way, run_kernel
from tests.support.sweeps import some_of

NARROW = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def rounded(dtype: str, *shape: int) -> np.ndarray:
    """Weights of 16 bits, a few of them below the normal ones."""
    random = np.random.default_rng(len(shape))
    weights = random.normal(size=shape) * np.where(random.uniform(size=shape) < 0.1, 1e-5, 1.0)
    return weights.astype(NARROW[dtype]).astype(np.float32)


def convolution(dtype: str, channels: int, depth: int, kernel: int, groups: int = 1) -> Conv2d:
    edge = kernel // 2
    return Conv2d(
        inputs=(floats(1, 5, 9, depth * groups),),
        outputs=(floats(1, 5, 9, channels),),
        weight=rounded(dtype, channels, kernel, kernel, depth),
        bias=np.linspace(-1, 1, channels, dtype=np.float32),
        window=Window(kernel=(kernel, kernel), padding=(edge,) * 4),
        groups=groups,
    )


def dense(dtype: str, rows: int, channels: int, depth: int) -> Dense:
    return Dense(
        inputs=(floats(rows, depth),),
        outputs=(floats(rows, channels),),
        weight=rounded(dtype, channels, depth),
        bias=np.linspace(-1, 1, channels, dtype=np.float32),
    )


def transposed_layer(dtype: str) -> Conv2dTranspose:
    return Conv2dTranspose(
        inputs=(floats(1, 3, 4, 5),),
        outputs=(floats(1, 6, 8, 7),),
        weight=rounded(dtype, 7, 2, 2, 5),
        bias=np.zeros(7, np.float32),
        window=Window(kernel=(2, 2), strides=(2, 2)),
    )


def layers(dtype: str) -> list[tuple[Kernel, Operator]]:
    """Full blocks, single vectors and odd tails of channels; windows of one run and tap by tap; rows that lie oddly."""
    return [
        (conv_f32.CONV2D_F32, convolution(dtype, 27, 3, 3)),
        (conv_f32.CONV2D_F32, convolution(dtype, 6, 3, 3, groups=2)),
        (depthwise_f32.KERNEL, convolution(dtype, 13, 1, 3, groups=13)),
        (conv_f32.POINTWISE_F32, convolution(dtype, 22, 6, 1)),
        (transposed.CONV2D_TRANSPOSE_F32, transposed_layer(dtype)),
        *(
            (dense_f32.KERNEL, dense(dtype, rows, channels, 15))
            for rows, channels in ((1, 35), (1, 30), (7, 24), (3, 2))
        ),
    ]


@pytest.mark.parametrize("dtype", some_of(["float16"], sweep=["bfloat16"]))
def test_the_bits_are_those_of_float32(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a layer is cut."""
    cases = layers(dtype)
    kernels = {id(operator): kernel for kernel, operator in cases}
    operators = [operator for _, operator in cases]
    inputs = [[elements(t, 3 + i) for i, t in enumerate(operator.inputs)] for operator in operators]

    def implement(operator: Operator, stored: StoredRows) -> Implementation:
        return kernels[id(operator)].implement(operator, HOST, stored)

    narrow = run_every_way(operators, inputs, implement)
    for module in (blocking, depthwise_f32):
        monkeypatch.setattr(module, "narrowest", lambda weight: FLOAT32)
    wide = [implement(operator, StoredRows()) for operator in operators]
    entries = compile_kernels(wide)
    for operator, arrays, runs, made, entry in zip(operators, inputs, narrow, wide, entries, strict=True):
        (_, few), (_, many) = runs.implementation.constants[0], made.constants[0]
        assert 2 * few.nbytes == many.nbytes and few.dtype == np.uint16
        (expected,) = run_kernel(operator, made, arrays, entry=entry)
        for found in (runs.whole, *runs.others.values()):
            assert_same_bits(found, expected)


def test_runs_of_a_result_are_read_as_the_whole_is() -> None:
    """A dense layer made a run of channels at a time, and one that takes its input in parts."""
    operator = dense("float16", 1, 36, 15)
    x = elements(operator.inputs[0], 1)
    whole = dense_f32.KERNEL.implement(operator, HOST, StoredRows())
    assert whole.in_rows is not None and whole.accumulating is not None
    parts = whole.accumulating.implement(3, StoredRows())
    expected, *found = [run_kernel(operator, made, [x])[0] for made in (whole, whole.in_rows(StoredRows()), parts)]
    for result in found:
        assert_same_bits(result, expected)


@pytest.mark.parametrize(
    ("weights", "dtype"),
    [
        ([1.0, -0.0, 65504, 2.0**-24], "float16"),
        ([1.0, 2.0**-25], "bfloat16"),
        ([1e30], "float32"),
        ([2.0**100, -(2.0**-120)], "bfloat16"),
        ([1 + 2.0**-10, 2.0**17], "float32"),
        ([np.nan], "float32"),
        ([np.inf], "float32"),
        ([0.5] * 300 + [0.1], "float32"),
    ],
)
def test_the_type_holds_every_weight(weights: list[float], dtype: str) -> None:
    assert narrowest(np.array(weights, np.float32)).dtype == dtype
