"""Depthwise conv2d of floats by an accelerator: each output channel reads one input channel.

float32[N, H, W, C], float32[R, S, K] -> float32[N, P, Q, K]; output channel k reads input channel k / (K / C). Sums and
bounds as of a conv2d.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.offload.driver import entry_of
from codegen_c.kernels.offload.offload_conv2d_f32 import ends_in_bounds, handed_over
from codegen_c.operators.kinds import Conv2d

KIND = "depthwise"


def reads_one_channel(operator: Conv2d, target: Target) -> bool:
    """every input channel must be a group of its own"""
    return operator.groups == operator.inputs[0].shape[3] and operator.weight.shape[3] == 1


def is_taken(operator: Conv2d, target: Target) -> bool:
    """the accelerator's driver must take a depthwise convolution of floats of its shape and window"""
    return entry_of(KIND, operator, target, operator.window) is not None


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return handed_over(KERNEL.name, KIND, operator, target, operator.weight[:, :, :, 0].transpose(1, 2, 0))


KERNEL = Kernel(
    name="offload_depthwise_f32", operator=Conv2d, implement=implement,
    constraints=(reads_one_channel, is_taken, ends_in_bounds), offload=True,
)  # fmt: skip
