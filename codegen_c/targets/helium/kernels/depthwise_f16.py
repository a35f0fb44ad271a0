"""Depthwise conv2d of float16 with Helium: the loops of depthwise_f32, four channels widened at a time.

float16[N, H, W, C], float16[C, R, S, 1] -> float16[N, P, Q, C]. Sums are float32: the bias, then products in the order
r, s ascending; each result is rounded once.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.depthwise_f32 import by_channels, depthwise_blocking, is_depthwise
from codegen_c.operators.kinds import HalfConv2d
from codegen_c.targets.helium.kernels.half_floats import LANES, finishes_in_vectors, holds_weights, rounded


def implement(operator: HalfConv2d, target: Target, stored: StoredRows) -> Implementation:
    blocking = replace(depthwise_blocking(operator, target), lanes=LANES)
    return rounded(by_channels(KERNEL.name, operator, blocking, stored))


KERNEL = Kernel(
    name="depthwise_f16",
    operator=HalfConv2d,
    implement=implement,
    constraints=(is_depthwise, holds_weights, finishes_in_vectors),
)
