"""Kernels of the DSP extension on a Cortex-M4: the instructions themselves against the numpy references."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c.kernels.contract import Kernel, StoredRows, Target
from codegen_c.kernels.convolution import conv_f32
from codegen_c.kernels.shared import common_shift
from codegen_c.operators.kinds import Conv2d, Window
from codegen_c.targets.dsp.kernels import convolution as convolution_dsp
from codegen_c.targets.dsp.kernels import dense as dense_dsp
from codegen_c.targets.dsp.kernels import depthwise as depthwise_dsp
from codegen_c.targets.dsp.kernels import elementwise as elementwise_dsp
from codegen_c.targets.dsp.kernels import winograd as winograd_dsp
from tests.boards.on_board import check_random_operators, run_on_board
from tests.kernels.dsp import CORTEX_M4, CORTEX_M7, take_only_shift, taken_by
from tests.kernels.float32 import floats
from tests.kernels.quantized import elements
from tests.kernels.test_qbinary import binaries
from tests.kernels.test_qconv2d import LINES, TILED, convolutions
from tests.kernels.test_qconv2d_dsp import (
    QUADS,
    QUADS_TWICE,
    SINGLES,
    SINGLES_OF_ROWS,
    TWICE,
    made_of_singles,
    names_of_two_roundings,
    pointwise,
    with_output,
)
from tests.kernels.test_qdense import dense_layers
from tests.kernels.test_qdense_dsp import VECTORS, VECTORS_TWICE
from tests.kernels.test_qdepthwise_dsp import STRIPS, STRIPS_TWICE, strips
from tests.kernels.test_qwinograd_dsp import FOURS
from tvm_ext.core.platform import Platform

pytestmark = pytest.mark.board

BLOCKS = pytest.mark.parametrize(
    ("target", "blocks"), [(CORTEX_M4, "blocks"), (CORTEX_M7, "blocks_dual")], ids=["m4", "m7"]
)
"""Functions for three pixels, for cores that start one instruction in a cycle or two; the M4 executes both."""
TILES = {winograd_dsp.QWINOGRAD: convolutions(tiled=TILED), winograd_dsp.QLINE: convolutions(tiled=LINES)}
STRATEGIES = {
    convolution_dsp.QCONV2D: convolutions(),
    depthwise_dsp.QDEPTHWISE: convolutions(depthwise=True),
    dense_dsp.QDENSE: dense_layers(),
    elementwise_dsp.QBINARY: binaries(),
}


@pytest.mark.parametrize("target", [CORTEX_M4, CORTEX_M7], ids=["m4", "m7"])
@pytest.mark.parametrize("kernel", TILES, ids=lambda kernel: kernel.name)
def test_bytes_of_tiles_are_those_of_the_reference(cortex_m4: Platform, kernel: Kernel, target: Target) -> None:
    check_random_operators(cortex_m4, target, kernel, taken_by(kernel, TILES[kernel]), count=16)


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(cortex_m4: Platform, kernel: Kernel) -> None:
    check_random_operators(cortex_m4, CORTEX_M4, kernel, taken_by(kernel, STRATEGIES[kernel]), count=16)


@pytest.mark.parametrize("shift", common_shift.SHIFTS)
def test_strips_of_depthwise_rows(cortex_m4: Platform, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function for strips, in one firmware."""
    calls = strips(shift, monkeypatch)
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(STRIPS)]
    outputs = run_on_board(cortex_m4, list(STRIPS), calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


@BLOCKS
@pytest.mark.parametrize("shift", common_shift.SHIFTS)
def test_blocks_of_pixels(
    cortex_m4: Platform, shift: int, target: Target, blocks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products finished in registers: weights joined and not, elements with and without a sign, 7 pixels."""
    take_only_shift(shift, monkeypatch)
    random = np.random.default_rng(3)
    weights = [random.integers(-100, 100, (6, depth)) for depth in (4, 8, 23, 36)]
    for whole in (weights[1], weights[3]):
        whole[:, 0] = -128  # which no channel can be joined with
    layers = [pointwise(weight, dtype=dtype) for weight in weights for dtype in ("int8", "uint8")]
    kinds = ("int8", "uint8", "uint8", "int8", "int8", "int8", "int8", "uint8")
    operators = [with_output(layer, dtype) for layer, dtype in zip(layers, kinds, strict=True)]
    calls = [convolution_dsp.QCONV2D.implement(operator, target, StoredRows()) for operator in operators]
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(operators)]
    code = "".join(call.function.helpers for call in calls)
    assert all(f"{blocks}_{joined}{kind}_{shift}(" in code for joined in ("", "joined_") for kind in ("s8", "u8"))
    outputs = run_on_board(cortex_m4, list(operators), calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


@pytest.mark.parametrize("shift", common_shift.SHIFTS)
def test_one_pixel_or_vector(cortex_m4: Platform, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function for one of them, in one firmware."""
    take_only_shift(shift, monkeypatch)
    vectors = [dense_dsp.QDENSE.implement(operator, CORTEX_M4, StoredRows()) for operator in VECTORS]
    calls, operators = [*made_of_singles(monkeypatch), *vectors], [*SINGLES, *VECTORS]
    code = "".join(call.function.helpers + call.function.body for call in calls)
    assert all(f"single_{width}_{kind}_{shift}" in code for width in ("1x2", "1x4") for kind in ("s8", "u8"))
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(operators)]
    outputs = run_on_board(cortex_m4, list(operators), calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


@BLOCKS
def test_two_roundings_of_three_pixels(cortex_m4: Platform, target: Target, blocks: str) -> None:
    calls = [convolution_dsp.QCONV2D.implement(operator, target, StoredRows()) for operator in TWICE]
    code = "".join(call.function.helpers for call in calls)
    assert all(name in code for name in names_of_two_roundings(blocks))
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(TWICE)]
    outputs = run_on_board(cortex_m4, list(TWICE), calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


@pytest.mark.parametrize("shift", common_shift.SHIFTS)
def test_two_pixels_by_four_channels(cortex_m4: Platform, shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each function for two pixels, in one firmware."""
    take_only_shift(shift, monkeypatch)
    layers = [*QUADS, *QUADS_TWICE]
    calls = [convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows()) for operator in layers]
    code = "".join(call.function.helpers for call in calls)
    assert all(f"tvm_ext_dsp_quads_{kind}(" in code for kind in (f"s8_{shift}", f"u8_{shift}", "s8_twice_signed"))
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(layers)]
    outputs = run_on_board(cortex_m4, layers, calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


def test_single_elements_of_two_rows(cortex_m4: Platform) -> None:
    layers = SINGLES_OF_ROWS[:12]
    calls = [convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows()) for operator in layers]
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(layers)]
    outputs = run_on_board(cortex_m4, layers, calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


def test_two_tiles_by_four_channels(cortex_m4: Platform) -> None:
    layers = [layer for layer in FOURS if layer.rounding != "litert"]
    calls = [winograd_dsp.QWINOGRAD.implement(operator, CORTEX_M4, StoredRows()) for operator in layers]
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(layers)]
    outputs = run_on_board(cortex_m4, list(layers), calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


def test_two_roundings(cortex_m4: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow Lite's, in registers: of one pixel left over, vectors and strips; halves among the sums."""
    vectors = [dense_dsp.QDENSE.implement(operator, CORTEX_M4, StoredRows()) for operator in VECTORS_TWICE]
    monkeypatch.setattr(convolution_dsp, "SINGLE_LEAST_SAVED", 0)
    by_ones = [convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows()) for operator in TWICE]
    in_strips = [depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, StoredRows()) for operator in STRIPS_TWICE]
    calls = [*by_ones, *vectors, *in_strips]
    operators = [*TWICE, *VECTORS_TWICE, *STRIPS_TWICE]
    code = "".join(call.function.helpers + call.function.body for call in calls)
    singles = {f"single_{width}_s8_twice{signed}" for width in ("1x2", "1x4") for signed in ("", "_signed")}
    assert all(name in code for name in singles)
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(operators)]
    outputs = run_on_board(cortex_m4, list(operators), calls, inputs)
    for implementation, arrays, result in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference(arrays)[0])


def test_tiles_of_floats(cortex_m4: Platform) -> None:
    """Groups of one to four pixels, and runs of an even and an odd length: each product fused, in its order."""
    random = np.random.default_rng(4)
    operators = [
        float_layer(random, columns, taps, depth) for columns in (1, 2, 3, 4, 7) for taps, depth in ((2, 8), (3, 3))
    ]
    operators.append(float_layer(random, 9, 3, 3, sides=4))  # the first window and the last see padding alone
    calls = [conv_f32.CONV2D_F32.implement(operator, CORTEX_M4, StoredRows()) for operator in operators]
    groups = "".join(call.function.helpers + call.function.body for call in calls)
    assert all(f"$_{pixels}_pixels(" in groups for pixels in (2, 3, 4))
    inputs = [[random.normal(size=operator.inputs[0].shape).astype(np.float32)] for operator in operators]
    outputs = run_on_board(cortex_m4, list(operators), calls, inputs)
    for operator, (x,), result in zip(operators, inputs, outputs, strict=True):
        columns, taps = operator.output.shape[2], operator.window.kernel[1]
        sides = operator.window.padding[1]
        x = np.pad(x, ((0, 0), (0, 0), (sides, sides), (0, 0)))
        sums = np.broadcast_to(operator.bias, (columns, len(operator.bias)))
        for s, c in np.ndindex(taps, x.shape[3]):
            product = np.outer(x[0, 0, s : s + columns, c].astype(np.float64), operator.weight[:, 0, s, c])
            sums = (product + sums).astype(np.float32)
        np.testing.assert_array_equal(result[0, 0], sums)


def float_layer(random: np.random.Generator, columns: int, taps: int, depth: int, *, sides: int = 0) -> Conv2d:
    """A row of `columns` outputs of 8 channels. sides: columns of padding on either side."""
    return Conv2d(
        inputs=(floats(1, 1, columns + taps - 1 - 2 * sides, depth),), outputs=(floats(1, 1, columns, 8),),
        weight=random.normal(size=(8, 1, taps, depth)).astype(np.float32),
        bias=random.normal(size=8).astype(np.float32), window=Window(kernel=(1, taps), padding=(0, sides, 0, sides)),
    )  # fmt: skip
