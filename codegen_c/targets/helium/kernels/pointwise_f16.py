"""1x1 conv2d of float16 with Helium: the product of pointwise_f32, whose pixels are widened before their channels.

float16[N, H, W, C], float16[K, 1, 1, C] -> float16[N, H, W, K]. Sums are float32: the bias, then products with c
ascending; each result is rounded once. Eight channels of weights are widened for three pixels.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.pointwise_f32 import by_pixels, is_pointwise
from codegen_c.operators.kinds import HalfConv2d
from codegen_c.targets.helium.kernels.half_floats import (
    finishes_in_vectors,
    holds_weights,
    product_blocking,
    rounded,
)


def implement(operator: HalfConv2d, target: Target, stored: StoredRows) -> Implementation:
    return rounded(by_pixels(KERNEL.name, operator, product_blocking(operator, target), stored))


KERNEL = Kernel(
    name="pointwise_f16",
    operator=HalfConv2d,
    implement=implement,
    constraints=(is_pointwise, holds_weights, finishes_in_vectors),
)
