"""Convolutions by Winograd's F(4, 3) and F(2, 5), by the DSP extension: C with its plain fallback against products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.arena.overlap import distances
from codegen_c.kernels.contract import Kept, StoredRows
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.winograd import winograd_line_transformed
from codegen_c.operators.kinds import QConv2d
from codegen_c.program.share_functions import ring_numbers
from codegen_c.program.tensors import Tensor
from codegen_c.targets.dsp.kernels import winograd as winograd_dsp
from tests.kernels.dsp import CORTEX_M4, SOME, for_cortex_m4, taken_by
from tests.kernels.harness import call_rows, compile_kernels
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qconv2d import LINES, convolutions
from tests.kernels.test_qwinograd_dsp import (
    assert_ends_keep_their_bits,
    assert_least_and_greatest,
    assert_rows_come_from_a_ring,
    layer,
)

KERNEL = winograd_dsp.QLINE
KERNELS = ((1, 3), (3, 1), (1, 5), (5, 1), (5, 5))


@settings(SOME, max_examples=4)
@given(st.lists(taken_by(KERNEL, convolutions(tiled=LINES)), min_size=1, max_size=4), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(KERNEL))


def test_extremes_keep_their_bits() -> None:
    """Transformed inputs and weights as large as they can be, of either sign, and zero points at the ends."""
    layers = [
        layer(weight.astype(np.int8), 9, dtype=dtype, zero_point=zero_point, rounding=rounding)
        for kernel in KERNELS
        for signs in [np.where(np.indices((4, *kernel, 8)).sum(axis=0) % 2, 127, -128)]
        for weight, dtype, zero_point, rounding in (
            (np.full_like(signs, -128), "int8", 127, "onnx"),
            (signs, "int8", -128, "tflite"),
            (np.full_like(signs, 127), "uint8", 255, "tflite"),
            (signs, "uint8", 0, "onnx"),
        )
    ]
    assert_ends_keep_their_bits(KERNEL, layers)


@pytest.mark.parametrize("kernel", [(3, 1), (5, 1), (1, 5), (5, 5)])
def test_several_rows_at_once_from_a_ring(kernel: tuple[int, int]) -> None:
    weight = np.random.default_rng(9).integers(-128, 128, (3, *kernel, 4)).astype(np.int8)
    assert_rows_come_from_a_ring(KERNEL, layer(weight, 9))


@pytest.mark.parametrize("kernel", [(3, 1), (5, 5)])
def test_rows_of_a_call_come_from_a_ring_and_go_to_one(kernel: tuple[int, int]) -> None:
    """Lines along columns write up to four rows together, of which a ring may keep fewer."""
    weight = np.random.default_rng(2).integers(-128, 128, (4, *kernel, 4)).astype(np.int8)
    operator = layer(weight, 9)
    x = elements(operator.inputs[0], 3)
    made = [KERNEL.implement(operator, CORTEX_M4, StoredRows(output=Kept(stored=kept))) for kept in (1, 2, 3, 5)]
    expected = made[0].reference([x])[0]
    for implementation, entry, kept in zip(made, compile_kernels(made), (1, 2, 3, 5), strict=True):
        for begin, end in ((0, 2), (1, 4), (0, 9), (3, 8)):
            ring = np.zeros((1, kept, 9, 4), np.int8)
            numbers = ring_numbers(StoredRows(output=Kept(stored=kept)))
            call_rows(entry, implementation, [x], [ring], begin, end, numbers)
            for row in range(max(begin, end - kept), end):
                np.testing.assert_array_equal(ring[0, row % kept], expected[0, row], f"{kept} rows, row {row}")


@pytest.mark.parametrize("kernel", [(1, 3), (5, 1)])
@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_sums_that_pass_an_int32_eightfold_are_refused(kernel: tuple[int, int], rounding: str) -> None:
    weight = np.random.default_rng(7).integers(-128, 128, (2, *kernel, 4)).astype(np.int8)
    assert_least_and_greatest(KERNEL, weight, 1 << 28, rounding, "bias and products must add up to less than 2^28")


def test_weights_are_multiples_of_those_of_the_transform() -> None:
    """G g of Lavin and Gray's F(4, 3), in floats."""
    g = np.random.default_rng(1).integers(-128, 128, (3, 1, 3, 4)).astype(np.int8)
    G = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
    multiples = np.array([4, -6, -6, 24, 24, 1])
    expected = multiples[:, np.newaxis] * np.einsum("is,krsc->kic", G, g)
    np.testing.assert_allclose(winograd_line_transformed(layer(g)), expected, rtol=0, atol=1e-9)


def test_chosen_where_it_takes_fewer_instructions() -> None:
    """Speed, and enough channels; a single output leaves most of a line unused."""
    many = layer(np.ones((32, 1, 3, 32), np.int8), 16)
    assert getattr(select(many, CORTEX_M4), "kernel", None) == "qline_dsp"
    small = replace(CORTEX_M4, optimize="size")
    assert getattr(select(many, small), "kernel", None) == "qconv2d_dsp"
    pixel = select(layer(np.ones((32, 1, 3, 32), np.int8), 1), CORTEX_M4)
    assert getattr(pixel, "kernel", None) == "qconv2d_dsp"
    upright = layer(np.ones((32, 3, 1, 32), np.int8), 16)
    by_rows = [KERNEL.implement(upright, CORTEX_M4, StoredRows(at_once=rows)).instructions for rows in (1, 4)]
    assert by_rows[0] > 3.6 * by_rows[1]


def test_rows_by_themselves_are_not_asked_for_where_tiles_stay_unused() -> None:
    """Six columns are three lines of two outputs; eight are four, of which each row would leave two of six unused."""
    weight = np.ones((8, 1, 5, 8), np.int8)
    for size, is_full in ((6, True), (8, False), (12, True)):
        operator = layer(weight, size)
        made = KERNEL.implement(operator, CORTEX_M4, StoredRows())
        single = KERNEL.implement(operator, CORTEX_M4, StoredRows(at_once=1))
        assert (single.instructions == made.instructions) is is_full
        tensors = [
            Tensor(name=name, source=name, shape=kind.shape, dtype=kind.dtype, memory="sram")
            for name, kind in (("x", operator.inputs[0]), ("y", operator.output))
        ]
        _, down = distances(made, 0, *tensors)
        assert (down < tensors[0].num_bytes) is is_full
