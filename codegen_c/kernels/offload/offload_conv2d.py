"""conv2d of a QDQ chain by an accelerator.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K]: a sum is its bias and all (x - zero point) *
w, products outside the input left out; either rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.offload.driver import entry_of, factors, scales, started, window_members
from codegen_c.kernels.shared.requantize import integer_weights, quantized_bytes
from codegen_c.operators.kinds import QConv2d

KIND = "conv2d"


def has_one_group(operator: QConv2d, target: Target) -> bool:
    """a driver's conv2d reads all input channels for each output channel"""
    return operator.groups == 1


def is_taken(operator: QConv2d, target: Target) -> bool:
    """the accelerator's driver must take a conv2d of its type, shape, window and rounding"""
    return entry_of(KIND, operator, target, operator.window) is not None


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(KERNEL.name, KIND, operator, target, operator.weight)


def handed_over(name: str, kind: str, operator: QConv2d, target: Target, weights: np.ndarray) -> Implementation:
    """A convolution of either kind, with its weights as the driver reads them."""
    finish, channels = qconv2d.requantize(operator), operator.output.shape[3]
    layer = {"window": window_members(operator, operator.window), **scales(operator.inputs[0], finish)}
    constants = (("weights", np.ascontiguousarray(weights)), ("bias", operator.bias), *factors(finish, channels))
    return started(
        name, operator, target, entry_of(kind, operator, target, operator.window), layer, constants,
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        macs=operator.output.num_elements * operator.weight[0].size,
    )  # fmt: skip


SUMS = (quantized_bytes, integer_weights, qconv2d.sums_fit, qconv2d.rescaled_sums_fit)
KERNEL = Kernel(
    name="offload_conv2d", operator=QConv2d, implement=implement, constraints=(has_one_group, is_taken, *SUMS),
    offload=True,
)  # fmt: skip
