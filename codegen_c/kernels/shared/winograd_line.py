"""Winograd's F(4, 3) and F(2, 5) along one axis in integers: which layers they may compute, and weights transformed.

Six products give four outputs of three taps, or two of five, instead of twelve and ten. A line d of six inputs gives
Y = A^T [U . V], V = B^T d, U = G g, by polynomials at 0, 1, -1, 2, -2 and infinity (Winograd, Arithmetic Complexity of
Computations, 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016). Each row of G stands here
at the multiple of it that is integers, 4, -6, -6, 24, 24 and 1 times it, and A makes up for that: sums come out 24
times the layer's, of which a product with the inverse of 3 modulo 2^32 leaves 8 times.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.window import taps_inside
from codegen_c.operators.kinds import Array, QConv2d, Window

POINTS = (0, 1, -1, 2, -2)
"""Where the polynomials are evaluated, beside infinity."""
PLACES = len(POINTS) + 1
TAPS = (3, 5)
SCALE_BITS = 3
"""Sums are 2^3 times those of the layer."""
SUM_LIMIT = 1 << 28
"""Bound of sums eight times which must fit an int32."""
COLUMNS, ROWS = 2, 1
"""Axes of an image [N, H, W, C]."""


def axis(window: Window) -> int:
    """Axis of images along which lines lie: along the columns of a row where these are of 3 or 5 taps."""
    return COLUMNS if window.kernel[1] in TAPS else ROWS


def taps(window: Window) -> int:
    """Taps along a line."""
    return window.kernel[axis(window) - 1]


def outputs(window: Window) -> int:
    """Outputs of a line of six inputs."""
    return PLACES + 1 - taps(window)


def has_a_line_of_stride_1(operator: QConv2d, target: Target) -> bool:
    """windows must have 3 or 5 adjacent taps along an axis but not 3 by 3, and stride 1"""
    window = operator.window
    along = set(TAPS) & set(window.kernel) and window.kernel != (3, 3)
    return bool(along) and window.strides == (1, 1) and window.dilation == (1, 1)


def eightfold_sums_fit(operator: QConv2d, target: Target) -> bool:
    """bias and products must add up to less than 2^28, whatever the input"""
    low, high = qconv2d.products(operator).range()
    return bool((low > -SUM_LIMIT).all() and (high < SUM_LIMIT).all())


def transformed(operator: QConv2d) -> Array:
    """int8[K, R, S, C] -> int16[K, 6, lines across * C], a multiple of Winograd's weights at each place."""
    window = operator.window
    weight = np.moveaxis(operator.weight.astype(np.int64), axis(window), 1)
    powers = np.array([[point**tap for tap in range(taps(window))] for point in POINTS], np.int64)
    last = np.eye(taps(window), dtype=np.int64)[-1:]  # infinity
    placed = np.einsum("it,ktrc->kirc", np.concatenate([powers, last]), weight)
    return placed.reshape(len(weight), PLACES, -1).astype(np.int16)


def lines_of_calls(operator: QConv2d, stored: StoredRows) -> list[int]:
    """Lines of outputs of each call."""
    batch, height, columns, _ = operator.output.shape
    at_once, window = stored.at_once or height, operator.window
    step = {ROWS: 1, COLUMNS: 1} | {axis(window): outputs(window)}
    calls = [min(at_once, height - h) for h in range(0, height, at_once)]
    return [batch * -(-rows // step[ROWS]) * -(-columns // step[COLUMNS]) for rows in calls]


def pixels_copied(operator: QConv2d, stored: StoredRows) -> int:
    """Inputs of lines that do not lie side by side in the image: of all along a column, of those at borders of rows."""
    window, (batch, rows, columns, _) = operator.window, operator.inputs[0].shape
    across = window.kernel[2 - axis(window)]
    lines = across * sum(lines_of_calls(operator, stored))
    if axis(window) == ROWS:
        return PLACES * lines
    first = np.arange(0, operator.output.shape[2], outputs(window)) - window.padding[1]
    inside = int(((first >= 0) & (first + PLACES <= columns)).sum())
    return PLACES * (lines - batch * inside * int(taps_inside(window, 0, rows, operator.output.shape[1]).sum()))
