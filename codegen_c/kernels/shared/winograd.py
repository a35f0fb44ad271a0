"""Winograd's F(2x2, 3x3), F(4, 3) and F(2, 5) in integers: which layers may use them, and their weights."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.window import taps_inside
from codegen_c.operators.kinds import Array, QConv2d, Window

# Winograd's F(2x2, 3x3) in integers: which layers may use it, and their transformed weights.
#
# Four outputs of a channel take 16 products instead of 36. Multiplying by twice G on either side keeps the weights
# integers and makes sums four times the layer's, modulo 2^32. A tile d of 4 by 4 inputs gives Y = A^T [U . V] A, V =
# B^T d B, U = G g G^T (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast Algorithms for
# Convolutional Neural Networks, 2016).

TAPS, PLACES = 3, 16
SCALE_BITS = 2
"""Accumulators are 2^2 times the sums of the layer."""
SUM_LIMIT = 1 << 29
"""Bound of sums of which four times the value must fit an int32."""
TWICE_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int64)


def is_3x3_of_stride_1(operator: QConv2d, target: Target) -> bool:
    """windows must be of 3 by 3 adjacent taps, and of stride 1"""
    window = operator.window
    return window.kernel == (TAPS, TAPS) and window.strides == (1, 1) and window.dilation == (1, 1)


def for_speed(operator: QConv2d, target: Target) -> bool:
    """weights of twice the bytes or more are only for speed, and only if flash need not be saved"""
    return target.optimize == "speed" and not target.least_flash


def fourfold_sums_fit(operator: QConv2d, target: Target) -> bool:
    """bias and products must add up to less than 2^29, for every input"""
    low, high = qconv2d.products(operator).range()
    return bool((low > -SUM_LIMIT).all() and (high < SUM_LIMIT).all())


def transformed(weight: Array) -> Array:
    """Transform int8[K, 3, 3, C] to four times Winograd's weights, int16[K, 4, 4, C]."""
    return np.einsum("ir,js,krsc->kijc", TWICE_G, TWICE_G, weight.astype(np.int64)).astype(np.int16)


def tiles_of_calls(operator: QConv2d, stored: StoredRows) -> list[int]:
    """Return the tiles of 2 by 2 outputs of each call."""
    batch, height, columns, _ = operator.output.shape
    at_once = stored.at_once or height
    calls = [min(at_once, height - h) for h in range(0, height, at_once)]
    return [batch * -(-rows // 2) * -(-columns // 2) for rows in calls]


# Winograd's F(4, 3) and F(2, 5) along one axis in integers: which layers may use them, and transformed weights.
#
# Six products give four outputs of three taps, or two of five, instead of twelve and ten. A line d of six inputs gives
# Y = A^T [U . V], V = B^T d, U = G g, by polynomials at 0, 1, -1, 2, -2 and infinity (Winograd, Arithmetic Complexity
# of Computations, 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016). Each row of G is
# multiplied by 4, -6, -6, 24, 24 or 1, which makes it integers, and A compensates: sums are 24 times the layer's, and a
# product with the inverse of 3 modulo 2^32 leaves 8 times.

POINTS = (0, 1, -1, 2, -2)
"""Points at which the polynomials are evaluated, beside infinity."""
WINOGRAD_LINE_PLACES = len(POINTS) + 1
WINOGRAD_LINE_TAPS = (3, 5)
WINOGRAD_LINE_SCALE_BITS = 3
"""Accumulators are 2^3 times the sums of the layer."""
WINOGRAD_LINE_SUM_LIMIT = 1 << 28
"""Bound of sums of which eight times the value must fit an int32."""
COLUMNS, ROWS = 2, 1
"""Axes of an image [N, H, W, C]."""


def axis(window: Window) -> int:
    """Return the axis of images along which lines lie: along the columns if the window has 3 or 5 of them."""
    return COLUMNS if window.kernel[1] in WINOGRAD_LINE_TAPS else ROWS


def taps(window: Window) -> int:
    """Return the taps along a line."""
    return window.kernel[axis(window) - 1]


def outputs(window: Window) -> int:
    """Return the outputs of a line of six inputs."""
    return WINOGRAD_LINE_PLACES + 1 - taps(window)


def has_a_line_of_stride_1(operator: QConv2d, target: Target) -> bool:
    """windows must have 3 or 5 adjacent taps along an axis but not 3 by 3, and stride 1"""
    window = operator.window
    along = set(WINOGRAD_LINE_TAPS) & set(window.kernel) and window.kernel != (3, 3)
    return bool(along) and window.strides == (1, 1) and window.dilation == (1, 1)


def eightfold_sums_fit(operator: QConv2d, target: Target) -> bool:
    """bias and products must add up to less than 2^28, for every input"""
    low, high = qconv2d.products(operator).range()
    return bool((low > -WINOGRAD_LINE_SUM_LIMIT).all() and (high < WINOGRAD_LINE_SUM_LIMIT).all())


def winograd_line_transformed(operator: QConv2d) -> Array:
    """Transform int8[K, R, S, C] to int16[K, 6, lines across * C], a multiple of Winograd's weights at each point."""
    window = operator.window
    weight = np.moveaxis(operator.weight.astype(np.int64), axis(window), 1)
    powers = np.array([[point**tap for tap in range(taps(window))] for point in POINTS], np.int64)
    last = np.eye(taps(window), dtype=np.int64)[-1:]  # infinity
    placed = np.einsum("it,ktrc->kirc", np.concatenate([powers, last]), weight)
    return placed.reshape(len(weight), WINOGRAD_LINE_PLACES, -1).astype(np.int16)


def lines_of_calls(operator: QConv2d, stored: StoredRows) -> list[int]:
    """Return the lines of outputs of each call."""
    batch, height, columns, _ = operator.output.shape
    at_once, window = stored.at_once or height, operator.window
    step = {ROWS: 1, COLUMNS: 1} | {axis(window): outputs(window)}
    calls = [min(at_once, height - h) for h in range(0, height, at_once)]
    return [batch * -(-rows // step[ROWS]) * -(-columns // step[COLUMNS]) for rows in calls]


def pixels_copied(operator: QConv2d, stored: StoredRows) -> int:
    """Return the inputs of lines that are not adjacent in the image: all along columns, those at borders along rows."""
    window, (batch, rows, columns, _) = operator.window, operator.inputs[0].shape
    across = window.kernel[2 - axis(window)]
    lines = across * sum(lines_of_calls(operator, stored))
    if axis(window) == ROWS:
        return WINOGRAD_LINE_PLACES * lines
    first = np.arange(0, operator.output.shape[2], outputs(window)) - window.padding[1]
    inside = int(((first >= 0) & (first + WINOGRAD_LINE_PLACES <= columns)).sum())
    return WINOGRAD_LINE_PLACES * (
        lines - batch * inside * int(taps_inside(window, 0, rows, operator.output.shape[1]).sum())
    )
