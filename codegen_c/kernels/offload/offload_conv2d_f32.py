"""conv2d of floats by an accelerator.

float32[N, H, W, C], float32[K, R, S, C] -> float32[N, P, Q, K]: bias and products, those outside the input left out,
then two bounds.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import reference
from codegen_c.kernels.offload.driver import bound_members, bounds, entry_of, started, window_members
from codegen_c.operators.kinds import Conv2d

KIND = "conv2d"


def has_one_group(operator: Conv2d, target: Target) -> bool:
    """a driver's conv2d reads all input channels for each output channel"""
    return operator.groups == 1


def is_taken(operator: Conv2d, target: Target) -> bool:
    """the accelerator's driver must take a conv2d of floats of its shape and window"""
    return entry_of(KIND, operator, target, operator.window) is not None


def ends_in_bounds(operator: Conv2d, target: Target) -> bool:
    """a driver's layer of floats has bounds behind its sums, and nothing else"""
    return bounds(operator.finish) is not None


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(KERNEL.name, KIND, operator, target, operator.weight)


def handed_over(name: str, kind: str, operator: Conv2d, target: Target, weights: np.ndarray) -> Implementation:
    """A convolution of either kind, with its weights as the driver reads them."""
    layer = {"window": window_members(operator, operator.window), **bound_members(bounds(operator.finish))}
    return started(
        name, operator, target, entry_of(kind, operator, target, operator.window), layer,
        (("weights", np.ascontiguousarray(weights)), ("bias", operator.bias)),
        reference=lambda inputs: reference(operator, inputs),
        macs=operator.output.num_elements * operator.weight[0].size,
    )  # fmt: skip


KERNEL = Kernel(
    name="offload_conv2d_f32", operator=Conv2d, implement=implement,
    constraints=(has_one_group, is_taken, ends_in_bounds), offload=True,
)  # fmt: skip
