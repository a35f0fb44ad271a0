"""Winograd's transforms in integers: equal to products for all inputs, and within 16 bits at every step.

Outputs are bilinear in inputs and weights, so what holds for each pair of unit vectors holds for all.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from codegen_c.kernels.shared import winograd
from tests.kernels.test_qwinograd_dsp import layer

TILE_INPUTS = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
TILE_OUTPUTS = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
"""B^T and A^T of tvm_ext_dsp_winograd.h."""
LINE_INPUTS = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
LINE_OUTPUTS = {
    3: np.array([[6, -4, -4, 1, 1, 0], [0, -4, 4, 2, -2, 0], [0, -4, -4, 4, 4, 0], [0, -4, 4, 8, -8, 24]]),
    5: np.array([[6, -4, -4, 1, 1, 0], [0, -4, 4, 2, -2, 24]]),
}
"""B^T and A^T of tvm_ext_dsp_winograd_line.h."""
ENDS = ((-128, 127), (0, 255))


def units(*shape: int) -> Iterator[np.ndarray]:
    for place in np.ndindex(*shape):
        unit = np.zeros(shape, np.int64)
        unit[place] = 1
        yield unit


@pytest.mark.parametrize("taps", winograd.WINOGRAD_LINE_TAPS)
def test_lines_are_24_times_the_sums(taps: int) -> None:
    outputs = winograd.WINOGRAD_LINE_PLACES + 1 - taps
    for g in units(taps):
        weight = np.zeros((1, 1, taps, 4), np.int8)
        weight[0, 0, :, 0] = g
        u = winograd.winograd_line_transformed(layer(weight))[0, :, 0]
        for d in units(winograd.WINOGRAD_LINE_PLACES):
            found = LINE_OUTPUTS[taps] @ (u * (LINE_INPUTS @ d))
            np.testing.assert_array_equal(found, 24 * np.correlate(d, g, "valid"))
            assert len(found) == outputs
    assert 3 * 0xAAAAAAAB % (1 << 32) == 1


def test_tiles_are_four_times_the_sums() -> None:
    for g in units(3, 3):
        u = winograd.transformed(g.reshape(1, 3, 3, 1).astype(np.int8))[0, :, :, 0]
        for d in units(4, 4):
            found = TILE_OUTPUTS @ (u * (TILE_INPUTS @ d @ TILE_INPUTS.T)) @ TILE_OUTPUTS.T
            sums = [[(d[h : h + 3, w : w + 3] * g).sum() for w in (0, 1)] for h in (0, 1)]
            np.testing.assert_array_equal(found, 4 * np.array(sums))


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_transformed_inputs_fit_16_bits(low: int, high: int) -> None:
    """Terms of a row, in whatever order they are added, and the whole row, which is narrower."""
    for matrix in (LINE_INPUTS, np.kron(TILE_INPUTS, TILE_INPUTS)):
        positive, negative = np.maximum(matrix, 0).sum(axis=1), np.minimum(matrix, 0).sum(axis=1)
        assert ((positive - negative) * max(-low, high)).max() <= 2550
        assert (positive * high + negative * low).max() <= 2040
        assert (positive * low + negative * high).min() >= -2040


@pytest.mark.parametrize("value", [-128, 127])
def test_transformed_weights_fit_16_bits(value: int) -> None:
    """Weights all of one end, and of both in turn, are those whose sums and differences are largest."""
    for kernel, largest in (((1, 3), 896), ((5, 1), 3968), ((5, 5), 3968)):
        weight = np.full((1, *kernel, 4), value, np.int8)
        u = winograd.winograd_line_transformed(layer(weight)).astype(np.int64)
        assert abs(u).max() == abs(value) * largest // 128
    tile = winograd.transformed(np.full((1, 3, 3, 1), value, np.int8)).astype(np.int64)
    assert abs(tile).max() == abs(value) * 9
