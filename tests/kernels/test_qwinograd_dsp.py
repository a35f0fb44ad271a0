"""Convolutions by Winograd's F(2x2, 3x3), by the DSP extension: C with its plain fallback against products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kept, Kernel, StoredRows
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.winograd import transformed
from codegen_c.operators.kinds import QConv2d, Quantization, TensorType, Window
from codegen_c.program.share_functions import ring_numbers
from codegen_c.targets.dsp.kernels import winograd as winograd_dsp
from tests.kernels.dsp import CORTEX_M4, CORTEX_M7, SOME, for_cortex_m4, taken_by
from tests.kernels.harness import call_rows, compile_kernels, run_kernel, run_ring, smallest_rings
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qconv2d import TILED, convolutions

KERNEL = winograd_dsp.QWINOGRAD


@settings(SOME, max_examples=3)
@given(st.lists(taken_by(KERNEL, convolutions(tiled=TILED)), min_size=1, max_size=3), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(KERNEL))


def layer(
    weight: np.ndarray,
    size: int = 5,
    *,
    dtype: str = "int8",
    zero_point: int = 3,
    rounding: str = "onnx",
    bias: int = 7,
) -> QConv2d:
    """An image of size by size; SAME padding. weight: int8[K, R, S, C]."""
    channels, *kernel, depth = weight.shape
    halves = tuple(taps // 2 for taps in kernel)
    largest = float(max(1, 128 * np.abs(weight.astype(np.int64)).sum(axis=(1, 2, 3)).max()))

    def image(elements_of_pixel: int, scale: float, zero: int) -> TensorType:
        quantization = Quantization(scale=scale, zero_point=zero)
        return TensorType(shape=(1, size, size, elements_of_pixel), dtype=dtype, quantization=quantization)

    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return QConv2d(
        inputs=(image(depth, 1.0, zero_point),), outputs=(image(channels, largest / 100, 1),), weight=weight,
        weight_scale=np.linspace(1, 1.5, channels, dtype=np.float32), bias=np.full(channels, bias, np.int32),
        window=Window(kernel=(kernel[0], kernel[1]), padding=(*halves, *halves)), low=low, high=high, rounding=rounding,
    )  # fmt: skip


def of_fours(channels: int, depth: int, size: int, *, dtype: str = "int8", rounding: str = "onnx") -> QConv2d:
    """A layer of random weights."""
    weight = np.random.default_rng(depth + size).integers(-128, 128, (channels, 3, 3, depth)).astype(np.int8)
    return layer(weight, size, dtype=dtype, zero_point=3 if dtype == "int8" else 130, rounding=rounding)


FOURS = [
    of_fours(4, 16, 5), of_fours(8, 32, 4, dtype="uint8"), of_fours(12, 48, 3, rounding="tflite"),
    of_fours(4, 64, 2, dtype="uint8"), of_fours(16, 16, 6, rounding="litert"),
]  # fmt: skip
"""Layers that are computed by two tiles and four channels: 9, 4, 4, 1 and 9 tiles; one to four rounds of the loop."""


def is_by_fours(operator: QConv2d) -> bool:
    return "by_fours" in KERNEL.implement(operator, CORTEX_M4, StoredRows()).function.helpers


def test_two_tiles_by_four_channels() -> None:
    assert all(map(is_by_fours, FOURS))
    inputs = [[elements(operator.inputs[0], 3)] for operator in FOURS]
    assert_c_equals_reference(list(FOURS), inputs, for_cortex_m4(KERNEL))


def test_three_tiles_where_loops_of_two_are_not_whole() -> None:
    assert not is_by_fours(of_fours(6, 16, 5)) and not is_by_fours(of_fours(8, 24, 5))
    dual = KERNEL.implement(FOURS[0], CORTEX_M7, StoredRows()).function.helpers
    assert "by_fours" not in dual and "is_dual_issue" in dual


def test_extremes_keep_their_bits() -> None:
    """Transformed inputs and weights as large as they can be, of either sign, and zero points at the ends."""
    signs = np.where(np.indices((4, 3, 3, 8)).sum(axis=0) % 2, 127, -128)
    layers = [
        layer(np.full((4, 3, 3, 8), weight).astype(np.int8), dtype=dtype, zero_point=zero_point, rounding=rounding)
        for weight, dtype, zero_point, rounding in (
            (-128, "int8", 127, "onnx"),
            (signs, "int8", -128, "tflite"),
            (127, "uint8", 255, "tflite"),
            (signs, "uint8", 0, "onnx"),
        )
    ]
    assert_ends_keep_their_bits(KERNEL, layers)
    signs = np.where(np.indices((4, 3, 3, 16)).sum(axis=0) % 2, 127, -128)
    by_fours = [
        layer(np.full((4, 3, 3, 16), weight).astype(np.int8), zero_point=zero_point)
        for weight, zero_point in ((-128, 127), (signs, -128))
    ]
    assert all(map(is_by_fours, by_fours))
    assert_ends_keep_their_bits(KERNEL, by_fours)


def assert_ends_keep_their_bits(kernel: Kernel, layers: list[QConv2d]) -> None:
    """Elements all at one end of their type, at either in turn, and at any of both."""
    made = [kernel.implement(operator, CORTEX_M4, StoredRows()) for operator in layers]
    board = np.indices(layers[0].inputs[0].shape).sum(axis=0) % 2
    anywhere = np.random.default_rng(6).integers(0, 2, board.shape)
    for operator, implementation, entry in zip(layers, made, compile_kernels(made), strict=True):
        limits = np.iinfo(operator.output.dtype)
        for at_end in (np.zeros_like(board), np.ones_like(board), board, anywhere):
            x = np.where(at_end, limits.max, limits.min).astype(limits.dtype)
            (found,) = run_kernel(operator, implementation, [x], entry=entry)
            np.testing.assert_array_equal(found, implementation.reference([x])[0])


@pytest.mark.parametrize("padding", [(7, 7, 7, 7), (0, 9, 0, 1), (1, 0, 0, 9)])
def test_tiles_that_see_padding_alone(padding: tuple[int, int, int, int]) -> None:
    """More padding than a tile is wide."""
    weight = np.random.default_rng(4).integers(-128, 128, (4, 3, 3, 4)).astype(np.int8)
    operator = layer(weight)
    top, left, bottom, right = padding
    shape = (1, 5 + top + bottom - 2, 5 + left + right - 2, 4)
    padded = replace(
        operator, window=replace(operator.window, padding=padding), outputs=(replace(operator.output, shape=shape),)
    )
    assert_c_equals_reference([padded], [[elements(padded.inputs[0], 5)]], for_cortex_m4(KERNEL))


def assert_rows_come_from_a_ring(kernel: Kernel, operator: QConv2d) -> None:
    """Calls of two to five rows, which read the last rows of those before again."""
    x = elements(operator.inputs[0], 8)
    whole = kernel.implement(operator, CORTEX_M4, StoredRows())
    rings = [smallest_rings(whole, at_once) for at_once in (2, 3, 4, 5)]
    made = [kernel.implement(operator, CORTEX_M4, stored) for stored in rings]
    for implementation, stored, entry in zip(made, rings, compile_kernels(made), strict=True):
        (found,) = run_ring(operator, implementation, stored, [x], entry)
        np.testing.assert_array_equal(found, whole.reference([x])[0], f"{stored.at_once} rows")


def test_several_rows_at_once_from_a_ring() -> None:
    weight = np.random.default_rng(9).integers(-128, 128, (3, 3, 3, 4)).astype(np.int8)
    assert_rows_come_from_a_ring(KERNEL, layer(weight, 9))
    assert_rows_come_from_a_ring(KERNEL, of_fours(4, 16, 9))


def test_the_last_rows_of_a_call_stay_in_a_ring_of_fewer() -> None:
    """A slice behind it that reads every other row asks for two at a time, and keeps one."""
    operator = layer(np.random.default_rng(2).integers(-128, 128, (4, 3, 3, 4)).astype(np.int8), 6)
    x = elements(operator.inputs[0], 3)
    made = [KERNEL.implement(operator, CORTEX_M4, StoredRows(output=Kept(stored=kept))) for kept in (1, 2, 3)]
    expected = made[0].reference([x])[0]
    for implementation, entry, kept in zip(made, compile_kernels(made), (1, 2, 3), strict=True):
        for begin, end in ((0, 2), (1, 4), (0, 6), (3, 6)):
            ring = np.zeros((1, kept, 6, 4), np.int8)
            numbers = ring_numbers(StoredRows(output=Kept(stored=kept)))
            call_rows(entry, implementation, [x], [ring], begin, end, numbers)
            for row in range(max(begin, end - kept), end):
                np.testing.assert_array_equal(ring[0, row % kept], expected[0, row], f"{kept} rows, row {row}")


@pytest.mark.parametrize("rounding", ["onnx", "tflite"])
def test_sums_that_pass_an_int32_fourfold_are_refused(rounding: str) -> None:
    weight = np.random.default_rng(7).integers(-128, 128, (2, 3, 3, 4)).astype(np.int8)
    assert_least_and_greatest(KERNEL, weight, 1 << 29, rounding, "bias and products must add up to less than 2^29")


def assert_least_and_greatest(kernel: Kernel, weight: np.ndarray, limit: int, rounding: str, reason: str) -> None:
    """Sums that just reach their limits, either of them, keep their bits; one more is refused. weight: [2, R, S, C]."""
    plain = layer(weight, bias=0, dtype="uint8", zero_point=255, rounding=rounding)
    low, high = qconv2d.products(plain).range()
    wide = replace(plain.output, quantization=Quantization(scale=limit / 100, zero_point=128))
    ends = np.array([1 - limit - low[0], limit - 1 - high[1]])
    taken = replace(plain, bias=ends.astype(np.int32), outputs=(wide,))
    assert kernel.refuses(taken, CORTEX_M4) is None
    for beyond in ((-1, 0), (0, 1)):
        refusal = kernel.refuses(replace(taken, bias=(ends + beyond).astype(np.int32)), CORTEX_M4)
        assert refusal is not None and refusal.reason == f"{reason}, for every input"
    x = np.full(taken.inputs[0].shape, 255, np.uint8)
    top, left = (2 - taps // 2 for taps in weight.shape[1:3])
    x[0, top : top + weight.shape[1], left : left + weight.shape[2]][weight[0] > 0] = 0  # the least sum of channel 0
    (result,) = assert_c_equals_reference([taken], [[x]], for_cortex_m4(kernel))
    assert result[0, 2, 2, 0] == 28


def test_weights_are_four_times_those_of_the_transform() -> None:
    """G g G^T of Lavin and Gray, in floats, times four."""
    g = np.random.default_rng(1).integers(-128, 128, (3, 3, 3, 4)).astype(np.int8)
    G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    expected = 4 * np.einsum("ir,js,krsc->kijc", G, G, g)
    np.testing.assert_array_equal(transformed(g), expected)


def test_chosen_where_it_takes_fewer_instructions() -> None:
    """Speed, and enough channels and tiles; a single output leaves most of a tile unused."""
    many = layer(np.ones((16, 3, 3, 16), np.int8), 16)
    assert getattr(select(many, CORTEX_M4), "kernel", None) == "qwinograd_dsp"
    small = replace(CORTEX_M4, optimize="size")
    assert getattr(select(many, small), "kernel", None) == "qconv2d_dsp"
    pixel = select(layer(np.ones((16, 3, 3, 16), np.int8), 1), CORTEX_M4)
    assert getattr(pixel, "kernel", None) == "qconv2d_dsp"
    by_rows = [KERNEL.implement(many, CORTEX_M4, StoredRows(at_once=rows)).instructions for rows in (1, 2)]
    assert by_rows[0] > 1.8 * by_rows[1]
