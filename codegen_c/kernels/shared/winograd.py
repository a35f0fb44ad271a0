"""Winograd's F(2x2, 3x3) in integers: which layers it may compute, and their weights transformed.

Four outputs of a channel take 16 products instead of 36. Twice G on either side of the weights leaves all integers and
sums four times the layer's, modulo 2^32. A tile d of 4 by 4 inputs gives Y = A^T [U . V] A, V = B^T d B, U = G g G^T
(Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural
Networks, 2016).
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.operators.kinds import Array, QConv2d

TAPS, PLACES = 3, 16
SCALE_BITS = 2
"""Sums are 2^2 times those of the layer."""
SUM_LIMIT = 1 << 29
"""Bound of sums four times which must fit an int32."""
TWICE_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], np.int64)


def is_3x3_of_stride_1(operator: QConv2d, target: Target) -> bool:
    """windows must be of 3 by 3 adjacent taps, and of stride 1"""
    window = operator.window
    return window.kernel == (TAPS, TAPS) and window.strides == (1, 1) and window.dilation == (1, 1)


def for_speed(operator: QConv2d, target: Target) -> bool:
    """weights of twice the bytes or more are for speed, not for size, and where flash has room"""
    return target.optimize == "speed" and not target.least_flash


def fourfold_sums_fit(operator: QConv2d, target: Target) -> bool:
    """bias and products must add up to less than 2^29, whatever the input"""
    low, high = qconv2d.products(operator).range()
    return bool((low > -SUM_LIMIT).all() and (high < SUM_LIMIT).all())


def transformed(weight: Array) -> Array:
    """int8[K, 3, 3, C] -> four times Winograd's weights, int16[K, 4, 4, C]."""
    return np.einsum("ir,js,krsc->kijc", TWICE_G, TWICE_G, weight.astype(np.int64)).astype(np.int16)


def tiles_of_calls(operator: QConv2d, stored: StoredRows) -> list[int]:
    """Tiles of 2 by 2 outputs of each call."""
    batch, height, columns, _ = operator.output.shape
    at_once = stored.at_once or height
    calls = [min(at_once, height - h) for h in range(0, height, at_once)]
    return [batch * -(-rows // 2) * -(-columns // 2) for rows in calls]
