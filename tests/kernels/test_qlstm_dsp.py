"""Integer LSTM with the DSP extension: lines of its table, sums in registers, and steps, byte for byte."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.kernels.recurrent import qlstm
from codegen_c.kernels.recurrent.qlstm import dense_sums
from codegen_c.operators.kinds import QLstm, TensorType
from codegen_c.targets.dsp.kernels import dense, recurrent
from tests.kernels.dsp import CORTEX_M4, for_cortex_m4
from tests.kernels.harness import PORTABLE, compile_kernels, run_kernel
from tests.kernels.quantized import FEW, seeds

LIMITS = np.iinfo(np.int16)


def sigmoids() -> np.ndarray:
    """2^16 * sigmoid(i / 24), as the files of TensorFlow Lite have it but for the last bit."""
    table = np.rint(65536 / (1 + np.exp(-np.arange(256) / 24))).astype(np.int64)
    table[-1] = 65535
    return np.minimum(table, 65535).astype(np.uint16)


def operator(units: int, channels: int, steps: int, seed: int, *, cell_power: int = -11, clip: int = 0) -> QLstm:
    random = np.random.default_rng(seed)
    shapes = ((1, units), "int8"), ((1, units), "int16"), ((steps, 1, channels), "int8")
    kinds = tuple(TensorType(shape=shape, dtype=dtype) for shape, dtype in shapes)
    gates = [(int(m) << 7, int(shift)) for m, shift in zip(
        random.integers(1 << 23, 1 << 24, 8), random.integers(28, 36, 8), strict=True
    )]  # fmt: skip
    return QLstm(
        inputs=kinds, outputs=(*kinds[:2], replace(kinds[2], shape=(steps, 1, units))),
        input_weight=random.integers(-128, 128, (4 * units, channels)).astype(np.int8),
        hidden_weight=random.integers(-128, 128, (4 * units, units)).astype(np.int8),
        bias=random.integers(-3000, 3000, 4 * units).astype(np.int32), table=sigmoids(),
        factors=(*gates, (1 << 30, 45), (1 << 30, 31 + 18), (1095936456, 53)), zero_points=(3, -4),
        cell_power=cell_power, clip=clip,
    )  # fmt: skip


def points(x: np.ndarray, index: np.ndarray, bits: int, half: int) -> np.ndarray:
    """Points of the lines of the table, as one dual product of halves gives them."""
    entry = recurrent.line_table(sigmoids())[256 + index].astype(np.int64)
    start, slope = entry >> 16, (entry & 0xFFFF ^ 0x8000) - 0x8000
    return (start << bits) + slope * x + half + (x >> 63)


def test_lines_give_every_value_of_both_functions() -> None:
    x, layer = np.arange(LIMITS.min, LIMITS.max + 1, dtype=np.int64), operator(4, 5, 1, 1)
    np.testing.assert_array_equal(points(x, 3 * x >> 9, 9, (1 << 24) + 512) >> 10, qlstm._sigmoid(layer, x))
    index = np.clip(3 * x >> 8, -256, 255)
    np.testing.assert_array_equal(points(x, index, 8, 128) >> 8, qlstm._tanh(layer, 3 * x))


@settings(FEW, max_examples=4)
@given(
    st.integers(1, 9), st.integers(1, 14), st.integers(1, 3), seeds, st.sampled_from((-12, -11, -9)),
    st.sampled_from((0, 20480)),
)  # fmt: skip
def test_steps(units: int, channels: int, steps: int, seed: int, cell_power: int, clip: int) -> None:
    layer = operator(units, channels, steps, seed, cell_power=cell_power, clip=clip)
    kernel = for_cortex_m4(recurrent.LSTM)
    assert kernel.refuses(layer, PORTABLE) is None
    made = kernel.implement(layer, PORTABLE, StoredRows())
    (entry,), random = compile_kernels([made]), np.random.default_rng(seed)
    for low, high in ((-128, 127), (-128, -128), (127, 127)):
        cell = random.integers(LIMITS.min, LIMITS.max + 1, (1, units)).astype(np.int16)
        x = random.integers(low, high + 1, (steps, 1, channels)).astype(np.int8)
        inputs = [random.integers(-128, 128, (1, units)).astype(np.int8), cell, x]
        for found, expected in zip(run_kernel(layer, made, inputs, entry=entry), made.reference(inputs), strict=True):
            np.testing.assert_array_equal(found, expected)


LAYER = operator(4, 5, 1, 1)


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (replace(LAYER, table=sigmoids() // 2), "the table of the sigmoid must begin"),
        (replace(LAYER, cell_power=-13), "the cell must have units of 2^-12 or more"),
        (replace(LAYER, factors=((1 << 30, 12), *LAYER.factors[1:])), "where a gate's factor is 1 / 2 or more"),
        (replace(LAYER, factors=(*LAYER.factors[:10], (1 << 30, 31))), "the factors from products of gates"),
    ],
)
def test_refusals(layer: QLstm, reason: str) -> None:
    refusal = recurrent.LSTM.refuses(layer, CORTEX_M4)
    assert refusal is not None and refusal.reason.startswith(reason)


def test_a_build_for_size_keeps_the_small_table() -> None:
    refusal = recurrent.LSTM.refuses(LAYER, replace(CORTEX_M4, optimize="size"))
    assert refusal is not None and refusal.reason.startswith("a build for size has the table of one sign")


@pytest.mark.parametrize(("channels", "depth"), [(16, 64), (12, 257), (20, 9), (3, 33), (30, 40)])
def test_sums_are_results_of_blocks(channels: int, depth: int) -> None:
    random = np.random.default_rng(depth)
    layer = dense_sums(
        random.integers(-127, 128, (channels, depth)).astype(np.int8),
        random.integers(-9999, 9999, channels).astype(np.int32), -7,
    )  # fmt: skip
    made = for_cortex_m4(dense.QDENSE).implement(layer, PORTABLE, StoredRows())
    assert "tvm_ext_dsp_single_1x4_sums" in made.function.body
    x = random.integers(-128, 128, (1, depth)).astype(np.int8)
    np.testing.assert_array_equal(run_kernel(layer, made, [x])[0], made.reference([x])[0])
